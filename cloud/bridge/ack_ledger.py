"""Which messages await Kafka, and what is owed to whom once it has them. No I/O.

Durable first, acknowledgement second: `settle` is called with Kafka's answer and only then says what to send. A packet id is good on the
connection that it came on: after a reconnection the broker sends the message again under its old id, so the old one is not
acknowledged, but the device still is, because Kafka has its frame. Devices are answered in the order of Kafka's confirmations; the
broker gets its PUBACKs in the order of its publishes (MQTT 5, section 4.6), whatever the order in which Kafka's partitions confirm.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from edgewake.protocol.ack import Ack, AckToken
from edgewake.protocol.errors import RejectReason


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
    """What a device is owed for one message."""

    response_topic: str
    correlation_data: bytes | None
    ack: Ack


class AckLedger:
    """Counts what is in flight, within a bound of messages and of bytes."""

    def __init__(self, *, messages_max: int, bytes_max: int) -> None:
        self.connection = 0
        self.messages = 0
        self.bytes = 0
        self._unacknowledged: deque[int] = deque()
        self._confirmed: set[int] = set()
        self._messages_max = messages_max
        self._bytes_max = bytes_max

    def connected(self) -> None:
        """A new connection: packet ids of the old one mean nothing on it."""
        self.connection += 1
        self._unacknowledged.clear()
        self._confirmed.clear()

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
        if waiting.packet_id is not None:
            self._unacknowledged.append(waiting.packet_id)

    def settle(self, waiting: Waiting, *, partition: int, offset: int) -> Owed | None:
        """Kafka has it there; what its device is owed."""
        self.messages -= 1
        self.bytes -= waiting.bytes
        if waiting.packet_id is not None and waiting.connection == self.connection:
            self._confirmed.add(waiting.packet_id)
        if waiting.response_topic is None:
            return None
        ack = Ack(AckToken(partition, offset, dead=waiting.rejected is not None), waiting.rejected, waiting.detail)
        return Owed(waiting.response_topic, waiting.correlation_data, ack)

    def pubacks(self) -> list[int]:
        """Packet ids that may be acknowledged to the broker now, in its order."""
        ready = []
        while self._unacknowledged and self._unacknowledged[0] in self._confirmed:
            packet_id = self._unacknowledged.popleft()
            self._confirmed.discard(packet_id)
            ready.append(packet_id)
        return ready
