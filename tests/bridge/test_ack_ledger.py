"""What is owed for a message, and only when Kafka has it."""

from edgewake.cloud.bridge.ack_ledger import AckLedger, Owed, Waiting
from edgewake.protocol.ack import Ack, AckToken
from edgewake.protocol.errors import RejectReason

WAITING = Waiting(1, 7, "ew/v1/a/ack", b"c", 100, 0.0)


def ledger(*, messages_max: int = 10, bytes_max: int = 1000) -> AckLedger:
    made = AckLedger(messages_max=messages_max, bytes_max=bytes_max)
    made.connected()
    return made


def test_what_kafka_has_is_acknowledged_to_the_broker_and_to_the_device() -> None:
    made = ledger()
    made.open(WAITING)
    assert made.pubacks() == []
    assert made.settle(WAITING, partition=2, offset=5) == Owed("ew/v1/a/ack", b"c", Ack(AckToken(2, 5)))
    assert made.pubacks() == [7]
    assert (made.messages, made.bytes, made.pubacks()) == (0, 0, [])


def test_a_packet_of_an_earlier_connection_is_not_acknowledged_but_its_device_is() -> None:
    """The broker sends it again under the same id, or gave the id to another message."""
    made = ledger()
    made.open(WAITING)
    made.connected()
    made.open(WAITING._replace(connection=2))
    assert made.settle(WAITING, partition=0, offset=0) == Owed("ew/v1/a/ack", b"c", Ack(AckToken(0, 0)))
    assert made.pubacks() == []


def test_the_broker_is_acknowledged_in_its_own_order_whatever_kafkas_is() -> None:
    made = ledger()
    first, second, third = (WAITING._replace(packet_id=number) for number in (9, 3, 5))
    for waiting in (first, second, third):
        made.open(waiting)
    made.settle(second, partition=1, offset=0)
    assert made.pubacks() == []
    made.settle(first, partition=0, offset=0)
    assert made.pubacks() == [9, 3]


def test_a_device_that_asks_for_no_answer_gets_none() -> None:
    made = ledger()
    waiting = WAITING._replace(packet_id=None, response_topic=None)
    made.open(waiting)
    assert made.settle(waiting, partition=0, offset=0) is None
    assert made.pubacks() == []


def test_a_dead_letter_is_answered_with_its_reason() -> None:
    made = ledger()
    waiting = WAITING._replace(rejected=RejectReason.JSON, detail="why")
    made.open(waiting)
    owed = made.settle(waiting, partition=0, offset=9)
    assert owed is not None
    assert owed.ack == Ack(AckToken(0, 9, dead=True), RejectReason.JSON, "why")


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
