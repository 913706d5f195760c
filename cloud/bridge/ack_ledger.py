"""Which messages await Kafka, and what is owed to whom once it has them. No I/O.

Durable first, acknowledgement second: `settle` is called with Kafka's answer and only then says what to send. A packet id is good on the
connection that it came on: after a reconnection the broker sends the message again under its old id, so the old one is not
acknowledged, but the device still is, because Kafka has its frame.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol.ack import Ack, AckToken
from protocol.errors import RejectReason


class Waiting(NamedTuple):
    """A message that is on its way to Kafka. A tuple: one is made for every message, and a frozen dataclass takes three times as long."""

    connection: int
    packet_id: int | None
    """None: QoS 0, the broker waits for nothing."""
    response_topic: str | None
    """None: the device waits for nothing."""
    correlation_data: bytes | None
    bytes: int
    since_s: float
    """Monotonic clock."""
    rejected: RejectReason | None = None
    detail: str = ""


class Owed(NamedTuple):
    """What to send for one message: a PUBACK, an answer to the device, both or neither."""

    packet_id: int | None
    response_topic: str | None
    correlation_data: bytes | None
    ack: Ack


class AckLedger:
    """Counts what is in flight, within a bound of messages and of bytes."""

    def __init__(self, *, messages_max: int, bytes_max: int) -> None:
        self.connection = 0
        self.messages = 0
        self.bytes = 0
        self._messages_max = messages_max
        self._bytes_max = bytes_max

    def connected(self) -> None:
        """A new connection: packet ids of the old one mean nothing on it."""
        self.connection += 1

    @property
    def is_full(self) -> bool:
        """Must reading stop? The broker keeps to the number of QoS 1 messages by itself; QoS 0 and bytes it does not count."""
        return self.messages >= self._messages_max or self.bytes >= self._bytes_max

    @property
    def has_room(self) -> bool:
        """May reading begin again? At half the bound, so that it does not flutter."""
        return self.messages * 2 <= self._messages_max and self.bytes * 2 <= self._bytes_max

    def open(self, waiting: Waiting) -> None:
        """It goes to Kafka now."""
        self.messages += 1
        self.bytes += waiting.bytes

    def settle(self, waiting: Waiting, *, partition: int, offset: int) -> Owed:
        """Kafka has it there."""
        self.messages -= 1
        self.bytes -= waiting.bytes
        return Owed(
            packet_id=waiting.packet_id if waiting.connection == self.connection else None,
            response_topic=waiting.response_topic,
            correlation_data=waiting.correlation_data,
            ack=Ack(AckToken(partition, offset, dead=waiting.rejected is not None), waiting.rejected, waiting.detail),
        )

    def forget(self, waiting: Waiting) -> None:
        """Kafka refused it and it goes another way."""
        self.messages -= 1
        self.bytes -= waiting.bytes
