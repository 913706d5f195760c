"""What gaps the sequencer said of each device lately, for `ew.devices`. No I/O.

The gaps themselves stand beside the readings, on the streams; these counts lead operators there.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final

from edgewake.cloud.sequencer.order.arrival import Statement, StatementKind
from edgewake.protocol.ops.device import DeviceGaps

REPORT_S: Final = 5.0
"""Seconds between two rounds of reports, so that a device has one row in each at most."""
REPORTS_MAX: Final = 50
"""Rows of one shard in one round; further devices wait for the next."""
DEVICES_MAX: Final = 4096
"""Devices of one shard that wait for their report; the gaps of further ones are not counted."""


@dataclass(slots=True)
class _Count:
    opened: int = 0
    missing: int = 0


class GapsSaid:
    """Counts since each device's last report."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Count] = {}
        self._reported_s = float("-inf")

    def note(self, one: Statement) -> None:
        """Count it, where something is missing."""
        if one.kind not in (StatementKind.OPEN, StatementKind.MISSING):
            return
        count = self._waiting.get(one.device)
        if count is None:
            if len(self._waiting) >= DEVICES_MAX:
                return
            count = self._waiting[one.device] = _Count()
        count.opened += one.kind is StatementKind.OPEN
        count.missing += one.lost

    def is_due(self, now_s: float) -> bool:
        """Is there something to report now?"""
        return bool(self._waiting) and now_s - self._reported_s >= REPORT_S

    def due(self, now_s: float, *, now_ms: int) -> list[DeviceGaps]:
        """The reports that may be made now."""
        if not self.is_due(now_s):
            return []
        self._reported_s = now_s
        devices = list(islice(self._waiting, REPORTS_MAX))
        return [self._report(device, now_ms) for device in devices]

    def _report(self, device: str, now_ms: int) -> DeviceGaps:
        count = self._waiting.pop(device)
        return DeviceGaps(device=device, at=now_ms, opened=count.opened, missing=count.missing)
