"""What is owed for a message, and only when Kafka has it."""

from cloud.bridge.ack_ledger import AckLedger, Owed, Waiting
from protocol.ack import Ack, AckToken
from protocol.errors import RejectReason

WAITING = Waiting(1, 7, "ew/v1/a/ack", b"c", 100, 0.0)


def ledger(*, messages_max: int = 10, bytes_max: int = 1000) -> AckLedger:
    made = AckLedger(messages_max=messages_max, bytes_max=bytes_max)
    made.connected()
    return made


def test_what_kafka_has_is_acknowledged_to_the_broker_and_to_the_device() -> None:
    made = ledger()
    made.open(WAITING)
    assert made.settle(WAITING, partition=2, offset=5) == Owed(7, "ew/v1/a/ack", b"c", Ack(AckToken(2, 5)))
    assert (made.messages, made.bytes) == (0, 0)


def test_a_packet_of_an_earlier_connection_is_not_acknowledged_but_its_device_is() -> None:
    """The broker sends it again under the same id, or gave the id to another message."""
    made = ledger()
    made.open(WAITING)
    made.connected()
    assert made.settle(WAITING, partition=0, offset=0) == Owed(None, "ew/v1/a/ack", b"c", Ack(AckToken(0, 0)))


def test_a_dead_letter_is_answered_with_its_reason() -> None:
    made = ledger()
    waiting = WAITING._replace(rejected=RejectReason.JSON, detail="why")
    made.open(waiting)
    assert made.settle(waiting, partition=0, offset=9).ack == Ack(AckToken(0, 9, dead=True), RejectReason.JSON, "why")


def test_reading_stops_at_the_bound_of_messages_and_goes_on_at_half() -> None:
    made = ledger(messages_max=4)
    for _ in range(4):
        made.open(WAITING)
    assert made.is_full
    made.settle(WAITING, partition=0, offset=0)
    assert not made.is_full
    assert not made.has_room
    made.settle(WAITING, partition=0, offset=1)
    assert made.has_room


def test_reading_stops_at_the_bound_of_bytes() -> None:
    made = ledger(bytes_max=150)
    made.open(WAITING)
    assert not made.is_full
    made.open(WAITING)
    assert made.is_full


def test_a_message_that_goes_another_way_is_no_longer_counted() -> None:
    made = ledger()
    made.open(WAITING)
    made.forget(WAITING)
    assert (made.messages, made.bytes) == (0, 0)
