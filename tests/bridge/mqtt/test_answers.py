"""Answers between two writes: one packet each, or joined where a device asked for that."""

from __future__ import annotations

from edgewake.cloud.bridge.mqtt.ack_ledger import Answer
from edgewake.cloud.bridge.mqtt.answers import Answers
from edgewake.protocol.frames.ack import Ack, AckToken
from edgewake.protocol.topics import JOINED_SUFFIX


def test_what_a_device_wants_joined_is_one_packet_and_each_answer_goes_once() -> None:
    answers, ack = Answers(), Ack(AckToken(0, 1))
    joined = f"ew/v1/a/ack{JOINED_SUFFIX}"
    for topic in ("ew/v1/b/ack", joined, joined, "ew/v1/b/ack"):
        answers.add(Answer(topic, b"7", ack))
    packets = answers.packets()
    assert [b"ew/v1/b/ack" in one for one in packets] == [True, True, False]
    assert joined.encode() in packets[2]
    assert answers.packets() == []
