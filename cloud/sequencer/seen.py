"""When each device was last seen, for `ew.devices`. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from edgewake.protocol.device import DeviceSeen

REPORT_S: Final = 5.0
"""Seconds between two reports of one device."""
FORGET_S: Final = 3600.0
"""Seconds after which a quiet device is dropped from memory; its last report stays on the topic."""


@dataclass(slots=True)
class _Seen:
    last_seen: int = 0
    skew_ms: int | None = None
    streams: set[str] = field(default_factory=set)
    records: int = 0
    reported_s: float = float("-inf")


class Seen:
    """What passed since the last report, per device."""

    def __init__(self) -> None:
        self._devices: dict[str, _Seen] = {}
        self._unreported: set[str] = set()

    def note(self, device: str, stream: str, *, received_at: int, sent_at: int | None) -> None:
        """A record of the device."""
        seen = self._devices.get(device)
        if seen is None:
            seen = self._devices[device] = _Seen()
        seen.records += 1
        if received_at > seen.last_seen:
            seen.last_seen = received_at
        if sent_at is not None and (seen.skew_ms is None or received_at - sent_at < seen.skew_ms):
            seen.skew_ms = received_at - sent_at
        seen.streams.add(stream)
        self._unreported.add(device)

    @property
    def has_unreported(self) -> bool:
        """Is there anything to report, now or soon?"""
        return bool(self._unreported)

    def due(self, now_s: float) -> list[DeviceSeen]:
        """The reports that may be made now."""
        due = [device for device in self._unreported if now_s - self._devices[device].reported_s >= REPORT_S]
        reports = []
        for device in due:
            seen = self._devices[device]
            reports.append(
                DeviceSeen(
                    device=device, last_seen=seen.last_seen, skew_ms=seen.skew_ms, streams=sorted(seen.streams), records=seen.records
                )
            )
            seen.skew_ms, seen.reported_s = None, now_s
            self._unreported.discard(device)
        return reports

    def forget_quiet(self, now_s: float) -> None:
        """Drop devices that have long been quiet."""
        quiet = [device for device, seen in self._devices.items() if device not in self._unreported and now_s - seen.reported_s > FORGET_S]
        for device in quiet:
            del self._devices[device]
