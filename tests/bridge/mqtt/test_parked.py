"""Messages that wait for the catalogue."""

from __future__ import annotations

from edgewake.cloud.bridge.mqtt.ack_ledger import Delivery
from edgewake.cloud.bridge.mqtt.parked import Parked, ParkedMessage


def test_messages_of_a_topic_go_in_order_and_hold_up_no_other_topic() -> None:
    parked = Parked[str]()
    delivery = Delivery(1, None, None, 0, 0.0)
    for topic, message in (("a", "a1"), ("b", "b1"), ("a", "a2"), ("a", "a3")):
        parked.add(topic, ParkedMessage(message, delivery, 0))
    went = []
    for topic, head in parked.heads():
        if head.message in ("a1", "a2"):  # of a3 and b1 the catalogue knows nothing yet
            parked.remove_head(topic)
            went.append(head.message)
    assert (went, len(parked), "a" in parked, "c" in parked) == (["a1", "a2"], 2, True, False)
    assert [head.message for _, head in parked.heads()] == ["a3", "b1"]
