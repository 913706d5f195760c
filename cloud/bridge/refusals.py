"""What becomes of a refused message: a dead letter, the answer `later`, or only a count.

A device has a share of the dead letters (`allowance`). Beyond it a message that can be answered is
answered `later`, and of any other the beginning is kept, and then only its count, which one letter
tells every LEFT_OUT_S.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

import mqtt5

from edgewake.cloud.bridge.admission.allowance import (
    LETTER_HEAD_BYTES,
    Account,
    Allowance,
    Room,
)
from edgewake.cloud.bridge.admission.records import (
    KafkaRecord,
    aside_letter,
    dead_letter,
    is_answerable,
    left_out_letter,
)
from edgewake.cloud.bridge.expense import size_of
from edgewake.cloud.bridge.metrics import BridgeMetrics
from edgewake.cloud.bridge.mqtt.ack_ledger import Delivery
from edgewake.cloud.bridge.traces import BridgeTraces
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.ack import Later, LaterReason
from edgewake.protocol.mqtt import Unreadable

log = logging.getLogger("edgewake.bridge")

LEFT_OUT_S: Final = 60.0
"""Seconds between two letters that tell how many dead letters were only counted."""
LETTER_RETRY_MS: Final = 30_000
"""A device that used up its share of dead letters is asked to wait this long."""


class Refusals:
    """Decides what becomes of refused messages, and counts them."""

    def __init__(
        self,
        part: str,
        *,
        allowance: Allowance,
        metrics: BridgeMetrics,
        clock: Clock,
        traces: BridgeTraces | None,
        answer: Callable[[Delivery], None],
        settle: Callable[[Delivery], None],
    ) -> None:
        """`answer`: sends a delivery's answer; `settle`: ends one that needs no record."""
        self._part = part
        self._allowance = allowance
        self._metrics = metrics
        self._clock = clock
        self._traces = traces
        self._answer, self._settle = answer, settle
        self._told_s = clock.monotonic_s()
        """When the last letter told what was only counted."""

    def letter(
        self,
        packet: mqtt5.PublishPacket | Unreadable,
        delivery: Delivery,
        why: Rejected,
        account: Account,
        received_at: int,
        *,
        later: Later | None = None,
    ) -> KafkaRecord | None:
        """The dead letter of a message.

        None where the device must come again `later`, or has too many letters.
        """
        if later is not None and is_answerable(packet):
            self._postpone(packet, delivery, why, account, later)
            return None
        room = account.letter_room(size_of(packet), delivery.since_s)
        if room is Room.NONE:
            self._leave_out(packet, delivery, why, account)
            return None
        self._note(packet, why, delivery)
        return dead_letter(
            packet, why, part=self._part, received_at=received_at, bytes_max=_bytes_max(room)
        )

    def letters_aside(
        self, record: KafkaRecord, topic: str, account: Account, now_s: float
    ) -> Iterator[KafkaRecord]:
        """Dead letters of single readings; the rest of their frame passes."""
        for one in record.aside:
            self._metrics.rejected[RejectReason.FIELD_TYPE] += 1
            room = account.letter_room(len(one.payload), now_s)
            if room is Room.NONE:
                self._metrics.outcomes["counted"] += 1
                self._allowance.note_left_out(account, len(one.payload))
                continue
            yield aside_letter(
                one,
                topic,
                part=self._part,
                received_at=record.timestamp,
                bytes_max=_bytes_max(room),
            )

    def count(
        self, packet: mqtt5.PublishPacket | Unreadable, why: RejectReason, account: Account
    ) -> None:
        """Nothing is kept of a message but its number and size."""
        self._metrics.rejected[why] += 1
        self._metrics.outcomes["counted"] += 1
        self._allowance.note_left_out(account, size_of(packet))

    def due(self, now_s: float) -> bool:
        """Has the time come for `counted`?"""
        return now_s - self._told_s > LEFT_OUT_S

    def counted(self, now_s: float) -> Iterator[KafkaRecord]:
        """Letters that tell how many dead letters were only counted since the last time."""
        self._told_s = now_s
        for one in self._allowance.left_out():
            yield left_out_letter(one, part=self._part, received_at=self._clock.now_ms())

    def _postpone(
        self,
        packet: mqtt5.PublishPacket | Unreadable,
        delivery: Delivery,
        why: Rejected,
        account: Account,
        later: Later,
    ) -> None:
        """Ask the device to come again; one that was asked too often is not answered."""
        if later.reason is LaterReason.QUOTA and not account.may_be_told_later(delivery.since_s):
            self._only_count(packet, delivery, why, account)
            return
        self._metrics.later[later.reason] += 1
        delivery.later = later
        self._answer(delivery)

    def _leave_out(
        self,
        packet: mqtt5.PublishPacket | Unreadable,
        delivery: Delivery,
        why: Rejected,
        account: Account,
    ) -> None:
        """Refuse a message of a device with as many dead letters as it may have.

        It must wait, or the letter is only counted.
        """
        if is_answerable(packet):
            detail = f"more dead letters than device {account.device!r} may have; this one: {why}"
            later = Later(LaterReason.QUOTA, LETTER_RETRY_MS, detail)
            self._postpone(packet, delivery, why, account, later)
            return
        self._only_count(packet, delivery, why, account)

    def _only_count(
        self,
        packet: mqtt5.PublishPacket | Unreadable,
        delivery: Delivery,
        why: Rejected,
        account: Account,
    ) -> None:
        self._allowance.mute(account, delivery.since_s)
        self.count(packet, why.reason, account)
        delivery.is_left_out = True
        delivery.detail = why.detail
        self._settle(delivery)

    def _note(
        self, packet: mqtt5.PublishPacket | Unreadable, refusal: Rejected, delivery: Delivery
    ) -> None:
        delivery.rejected, delivery.detail = refusal.reason, refusal.detail
        if self._traces is not None:
            self._traces.refused(packet, refusal, delivery.since_s)
        if not is_answerable(packet):
            delivery.response_topic = delivery.correlation_data = None
        self._metrics.rejected[refusal.reason] += 1
        log.debug(
            "refused: %s",
            refusal,
            extra={"event": "bridge.refused", "topic": packet.topic, "reason": str(refusal.reason)},
        )


def _bytes_max(room: Room) -> int | None:
    """The bytes of a payload that its letter keeps; None: all."""
    return LETTER_HEAD_BYTES if room is Room.HEAD else None
