"""Which messages of one MQTT session await Kafka, and what may be acknowledged once it has them.

No I/O.

Durable first, acknowledgement second: `Delivery.stored_at` is set from Kafka's answer, and only
then does `pubacks` name its packet id, in the order of the broker's publishes (MQTT 5, section
4.6), whatever the order in which Kafka's partitions confirm.

A lost connection takes no message out of Kafka's client. When the broker sends such a message again
(same packet id, DUP flag), `readopt` finds the delivery that is still on its way, or already in
Kafka, and nothing is produced a second time. So what is in flight is bounded by the session's
receive maximum, however often the connection is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames.ack import NO_TYPES, Ack, AckToken, Later
from edgewake.protocol.frames.field_type import FieldType


class Delivery:
    """One message between the broker and Kafka. Plain slots: one is made for every message."""

    __slots__ = (
        "bytes",
        "correlation_data",
        "detail",
        "fingerprint",
        "is_left_out",
        "is_let_in",
        "later",
        "packet_id",
        "part_of",
        "parts",
        "rejected",
        "response_topic",
        "since_s",
        "stored_at",
        "types",
        "units",
    )  # fmt: skip

    def __init__(
        self,
        packet_id: int | None,
        response_topic: str | None,
        correlation_data: bytes | None,
        size: int,
        since_s: float,
        fingerprint: int = 0,
    ) -> None:
        self.packet_id: Final = packet_id
        """None: QoS 0, the broker waits for nothing."""
        self.response_topic = response_topic
        """None: the device waits for nothing."""
        self.correlation_data = correlation_data
        self.bytes = size
        """Bytes that it holds in memory; of a message that waits for the catalogue those that came,
        until its record is made."""
        self.since_s: Final = since_s
        """Monotonic clock when it came."""
        self.fingerprint: Final = fingerprint
        """Hash of the payload: tells a message sent again from another one under its packet id."""
        self.rejected: RejectReason | None = None
        self.detail = ""
        self.stored_at: tuple[int, int] | None = None
        """Partition and offset, once Kafka has it."""
        self.later: Later | None = None
        """Kafka never gets it: the device is asked to send it again later."""
        self.types: Mapping[str, FieldType] = NO_TYPES
        """Decided types, of fields that have odd values in it."""
        self.units: Mapping[str, str] | None = None
        """Units of the fields of its reading, as far as its map or device says them."""
        self.is_left_out = False
        """A status that says nothing new: nobody needs it."""
        self.parts: list[Delivery] | None = None
        """The parts of a split message that are not settled yet."""
        self.is_let_in = False
        """Part of a message that was accepted as a whole, for which its device may leave a debt."""
        self.part_of: Delivery | None = None
        """The message that this is a part of."""

    @property
    def is_settled(self) -> bool:
        """May the broker forget it?"""
        if self.parts is not None:
            return self._are_parts_settled(self.parts)
        return self.stored_at is not None or self.later is not None or self.is_left_out

    @staticmethod
    def _are_parts_settled(parts: list[Delivery]) -> bool:
        """Each part is asked until it is settled, and then no more."""
        while parts and parts[-1].is_settled:
            parts.pop()
        return not parts

    @property
    def is_awaited(self) -> bool:
        """Does somebody wait for what becomes of it?"""
        return self.response_topic is not None

    def note_part(self, part: Delivery) -> bool:
        """Note that a part is settled; return True after the last, when the device may be answered.

        The answer has its place, or the first dead letter and its reason.
        """
        if part.rejected is not None and self.rejected is None:
            self.rejected = part.rejected
            self.detail = f"a reading of several: {part.detail}"
            self.stored_at = part.stored_at
        elif self.rejected is None and part.stored_at is not None:
            self.stored_at = part.stored_at
        return self.is_settled

    def answer(self) -> Answer | None:
        """The answer to its device now; None where it asked for none or Kafka has not confirmed."""
        if self.response_topic is None:
            return None
        if self.later is not None:
            return Answer(self.response_topic, self.correlation_data, self.later)
        if self.stored_at is None or (self.parts is not None and not self.is_settled):
            return None
        partition, offset = self.stored_at
        ack = Ack(
            AckToken(partition, offset, dead=self.rejected is not None),
            self.rejected,
            self.detail,
            self.types,
        )
        return Answer(self.response_topic, self.correlation_data, ack)


class Awaited(Delivery):
    """What came by another door than the broker's: who brought it hears when all is settled."""

    __slots__ = ("_is_told", "_on_settled", "refused")

    def __init__(self, since_s: float, on_settled: Callable[[], None]) -> None:
        super().__init__(None, None, None, 0, since_s)
        self._on_settled = on_settled
        self._is_told = False
        self.refused = 0
        """Parts that are dead letters, or were counted only."""

    @property
    def is_awaited(self) -> bool:
        return True

    def note_part(self, part: Delivery) -> bool:
        """False: no device is answered by the broker."""
        is_refused = part.rejected is not None or part.is_left_out
        self.refused += is_refused
        if is_refused and not self.detail:
            self.detail = part.detail
        self.look()
        return False

    def look(self) -> None:
        """Say that all is settled, once, as soon as it is."""
        if not self._is_told and self.is_settled:
            self._is_told = True
            self._on_settled()


class Answer(NamedTuple):
    """What a device is owed for one message."""

    response_topic: str
    correlation_data: bytes | None
    ack: Ack | Later


class AckLedger:
    """The unacknowledged messages of one session, at most its receive maximum of them."""

    def __init__(self) -> None:
        self._in_order: deque[Delivery] = deque()
        """On this connection, in the broker's order, not acknowledged to it. Bounded by the broker:
        the session's receive maximum."""
        self._carried: dict[int, Delivery] = {}
        """Deliveries of earlier connections, by packet id; the broker sends each of them again.
        Bounded as above, for they were in flight there."""

    def __len__(self) -> int:
        return len(self._in_order)

    def connected(self, *, session_present: bool) -> None:
        """Note a new connection.

        The broker sends unacknowledged messages again, if it kept the session.
        """
        carried = {one.packet_id: one for one in self._in_order if one.packet_id is not None}
        # With those of the connection before it: that may have been lost before the broker had sent
        # them again.
        self._carried = {**self._carried, **carried} if session_present else {}
        self._in_order.clear()

    def add(self, delivery: Delivery) -> None:
        """A message that the broker wants acknowledged goes to Kafka now."""
        self._in_order.append(delivery)

    def readopt(self, packet_id: int | None, fingerprint: int) -> Delivery | None:
        """The delivery of which this is a repetition; None where it is new to us.

        Its packet id counts on this connection from now on.
        """
        known = self._carried.pop(packet_id, None) if packet_id is not None else None
        if known is None or known.fingerprint != fingerprint:
            return None
        self._in_order.append(known)
        return known

    def pubacks(self) -> list[int]:
        """Packet ids that may be acknowledged to the broker now, in its order."""
        ready = []
        waiting = self._in_order
        while waiting and waiting[0].is_settled:
            packet_id = waiting.popleft().packet_id
            assert packet_id is not None, "QoS 0 is never added"
            ready.append(packet_id)
        return ready


class InFlight:
    """Bounds what is between the broker and Kafka, over all sessions."""

    def __init__(self, *, messages_max: int, bytes_max: int) -> None:
        self.messages = 0
        self.bytes = 0
        self._messages_max = messages_max
        self._bytes_max = bytes_max

    @property
    def is_full(self) -> bool:
        """Must reading stop?

        The broker itself bounds the number of QoS 1 messages; QoS 0 and bytes it does not count.
        """
        return self.messages >= self._messages_max or self.bytes >= self._bytes_max

    @property
    def has_room(self) -> bool:
        """May reading start again? At half the bound, so that it does not flutter."""
        return self.messages * 2 <= self._messages_max and self.bytes * 2 <= self._bytes_max

    def add(self, size: int) -> None:
        """A message of `size` bytes came."""
        self.messages += 1
        self.bytes += size

    def remove(self, size: int) -> None:
        """Kafka has it."""
        self.messages -= 1
        self.bytes -= size
