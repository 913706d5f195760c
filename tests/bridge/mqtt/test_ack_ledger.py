"""What is owed for a message, and only when Kafka has it."""

from __future__ import annotations

from edgewake.cloud.bridge.mqtt.ack_ledger import AckLedger, Answer, Delivery, InFlight
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames.ack import Ack, AckToken


def delivery(
    packet_id: int | None = 7, *, response_topic: str | None = "ew/v1/a/ack", fingerprint: int = 1
) -> Delivery:
    return Delivery(packet_id, response_topic, b"c", 100, 0.0, fingerprint)


def ledger(*deliveries: Delivery) -> AckLedger:
    made = AckLedger()
    made.connected(session_present=False)
    for one in deliveries:
        made.add(one)
    return made


def test_what_kafka_has_is_acknowledged_to_the_broker_and_to_the_device() -> None:
    one = delivery()
    made = ledger(one)
    assert (made.pubacks(), one.answer()) == ([], None)
    one.stored_at = (2, 5)
    assert one.answer() == Answer("ew/v1/a/ack", b"c", Ack(AckToken(2, 5)))
    assert made.pubacks() == [7]
    assert (len(made), made.pubacks()) == (0, [])


def test_the_broker_is_acknowledged_in_its_own_order_whatever_kafkas_is() -> None:
    first, second, third = delivery(9), delivery(3), delivery(5)
    made = ledger(first, second, third)
    second.stored_at = (1, 0)
    assert made.pubacks() == []
    first.stored_at = (0, 0)
    assert made.pubacks() == [9, 3]


def test_a_packet_id_of_a_lost_connection_is_not_acknowledged_on_the_next() -> None:
    """The broker sends it again under the same id, or gave the id to another message."""
    one = delivery()
    made = ledger(one)
    made.connected(session_present=True)
    one.stored_at = (0, 0)
    assert made.pubacks() == []
    assert one.answer() is not None


def test_a_message_sent_again_is_the_one_on_its_way_and_is_acknowledged_on_the_new_connection() -> (
    None
):
    one = delivery()
    made = ledger(one)
    made.connected(session_present=True)
    assert made.readopt(7, 1) is one
    assert made.readopt(7, 1) is None
    one.stored_at = (0, 0)
    assert made.pubacks() == [7]


def test_a_message_sent_again_after_kafka_had_it_is_acknowledged_and_answered_at_once() -> None:
    one = delivery()
    made = ledger(one)
    one.stored_at = (0, 4)
    made.connected(session_present=True)
    again = made.readopt(7, 1)
    assert again is not None
    assert again.answer() == Answer("ew/v1/a/ack", b"c", Ack(AckToken(0, 4)))
    assert made.pubacks() == [7]


def test_another_message_under_an_old_packet_id_is_new() -> None:
    made = ledger(delivery())
    made.connected(session_present=True)
    assert made.readopt(7, 2) is None


def test_without_a_session_at_the_broker_no_packet_id_means_anything_any_more() -> None:
    made = ledger(delivery())
    made.connected(session_present=False)
    assert made.readopt(7, 1) is None


def test_connections_lost_before_everything_came_again_lose_no_delivery() -> None:
    """The second connection ends between two messages that the broker sends again; the third brings
    both.
    """
    first, second = delivery(1), delivery(2)
    made = ledger(first, second)
    made.connected(session_present=True)
    assert made.readopt(1, 1) is first
    made.connected(session_present=True)
    assert (made.readopt(1, 1), made.readopt(2, 1)) == (first, second)


def test_a_device_that_asks_for_no_answer_gets_none() -> None:
    one = delivery(None, response_topic=None)
    one.stored_at = (0, 0)
    assert one.answer() is None


def test_a_dead_letter_is_answered_with_its_reason() -> None:
    one = delivery()
    one.rejected, one.detail, one.stored_at = RejectReason.JSON, "why", (0, 9)
    answer = one.answer()
    assert answer is not None
    assert answer.ack == Ack(AckToken(0, 9, dead=True), RejectReason.JSON, "why")


def test_reading_stops_at_the_bound_of_messages_and_goes_on_at_half() -> None:
    made = InFlight(messages_max=4, bytes_max=1000)
    for _ in range(4):
        made.add(1)
    assert made.is_full
    made.remove(1)
    assert not made.is_full
    assert not made.has_room
    made.remove(1)
    assert made.has_room


def test_reading_stops_at_the_bound_of_bytes() -> None:
    made = InFlight(messages_max=10, bytes_max=150)
    made.add(100)
    assert not made.is_full
    made.add(100)
    assert made.is_full


def test_a_message_that_was_taken_apart_is_acknowledged_when_all_of_it_is_settled() -> None:
    whole, parts = delivery(9), [delivery(None) for _ in range(3)]
    whole.parts = list(parts)
    made = ledger(whole, delivery(3))
    parts[2].stored_at = (0, 1)
    parts[0].is_left_out = True
    assert made.pubacks() == []
    parts[1].stored_at = (0, 2)
    assert made.pubacks() == [9]


def test_a_message_without_a_reading_is_acknowledged_at_once() -> None:
    whole = delivery(9)
    whole.parts = []
    assert ledger(whole).pubacks() == [9]
