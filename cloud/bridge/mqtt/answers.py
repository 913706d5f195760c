"""Encodes answers to devices: one packet each, or several answers joined on request. No I/O."""

from __future__ import annotations

from collections import defaultdict

import mqtt5

from edgewake.cloud.bridge.mqtt.ack_ledger import AckLedger, Answer
from edgewake.protocol.frames.ack import joined
from edgewake.protocol.topics import JOINED_SUFFIX


class Answers:
    """Answers collected between two writes.

    So a device gets one message for all that Kafka confirmed meanwhile.
    """

    def __init__(self) -> None:
        self._single: list[Answer] = []
        self._joined: defaultdict[str, list[Answer]] = defaultdict(list)

    def add(self, answer: Answer) -> None:
        """It goes out with the next packets."""
        if answer.response_topic.endswith(JOINED_SUFFIX):
            self._joined[answer.response_topic].append(answer)
        else:
            self._single.append(answer)

    def packets(self) -> list[bytes]:
        """Everything collected, as MQTT packets with QoS 0; then nothing is left."""
        single, self._single = self._single, []
        packets = [
            mqtt5.PublishPacket(
                one.response_topic, one.ack.encode(), correlation_data=one.correlation_data
            ).write()
            for one in single
        ]
        if self._joined:
            by_topic, self._joined = self._joined, defaultdict(list)
            for topic, answers in by_topic.items():
                for payload in joined((one.correlation_data or b"", one.ack) for one in answers):
                    packets.append(mqtt5.PublishPacket(topic, payload).write())
        return packets


def pubacks(ledger: AckLedger) -> list[bytes]:
    """What may be acknowledged to the broker now, as packets."""
    return [mqtt5.PubAckPacket(packet_id).write() for packet_id in ledger.pubacks()]
