"""When each device was last seen, for `ew.devices`. No I/O."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from edgewake.protocol.ops.device import DeviceSeen

REPORT_S: Final = 5.0
"""Seconds between two reports of one device at least."""
# rows of one shard and second: `ew.devices` is read whole by the operations, a large fleet reports
# less often
REPORTS_MAX: Final = 50
# devices of one shard that wait for their report; further ones are noted when they send the next
# time
DEVICES_MAX: Final = 4096


@dataclass(slots=True)
class _Seen:
    last_seen: int = 0
    skew_ms: int | None = None
    streams: Counter[str] = field(default_factory=Counter)
    readings: Counter[str] = field(default_factory=Counter)
    records: int = 0
    newest: int = 0
    is_offline: bool = False


class Seen:
    """What passed since the last report, per device and, of things, per gateway."""

    def __init__(self) -> None:
        self._devices: dict[tuple[str, str], _Seen] = {}
        self._waiting: dict[tuple[str, str], _Seen] = {}
        """Sent since the last round began; reported in the next."""
        self._round_s = float("-inf")
        self._reported_s = float("-inf")

    def note(
        self,
        device: str,
        stream: str,
        *,
        received_at: int,
        sent_at: int | None,
        via: str = "",
        newest: int = 0,
        readings: int = 0,
        is_offline: bool = False,
    ) -> None:
        """Note a record of the device, with the number of its readings.

        `newest`: the latest event time, ms, of what came by the gateway `via`. `is_offline`: is the
        thing by its own word (`absences`)?
        """
        of = (device, via)
        seen = self._waiting.get(of)
        if seen is None:
            if len(self._waiting) >= DEVICES_MAX:
                return
            seen = self._waiting[of] = _Seen()
        if newest > seen.newest:
            seen.newest = newest
        seen.records += 1
        seen.is_offline = is_offline
        if received_at > seen.last_seen:
            seen.last_seen = received_at
        if sent_at is not None and (seen.skew_ms is None or received_at - sent_at < seen.skew_ms):
            seen.skew_ms = received_at - sent_at
        seen.streams[stream] += 1
        seen.readings[stream] += readings

    def is_due(self, now_s: float) -> bool:
        """Is there something to report now?"""
        return now_s - self._reported_s >= 1.0 and bool(
            self._devices or (self._waiting and now_s - self._round_s >= REPORT_S)
        )

    def due(self, now_s: float) -> list[DeviceSeen]:
        """The reports that may be made now."""
        if not self.is_due(now_s):
            return []
        self._reported_s = now_s
        if not self._devices:
            self._devices, self._waiting = self._waiting, {}
            self._round_s = now_s
        return [self._report(*of) for of in list(self._devices)[:REPORTS_MAX]]

    def _report(self, device: str, via: str) -> DeviceSeen:
        seen = self._devices.pop((device, via))
        streams = dict(sorted(seen.streams.items()))
        return DeviceSeen(
            device=device,
            last_seen=seen.last_seen,
            skew_ms=seen.skew_ms,
            streams=streams,
            readings=dict(sorted(seen.readings.items())),
            records=seen.records,
            via=via,
            newest=seen.newest or None,
            is_offline=seen.is_offline,
        )
