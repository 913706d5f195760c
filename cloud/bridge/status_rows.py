"""Which of the devices' statuses become a row of `ew.devices`. No I/O.

An agent reports every ten seconds, and `ew.devices` is one partition that the operations API reads
whole: of 20 000 agents it would get 2 000 rows a second, nearly all of which repeat the last one. A
status that differs in what people look at is written at once; one that only repeats it is written
when the last row of the device is old enough, which in a large fleet is up to a minute. A device
that comes back after its last will, which another bridge may have written, differs by
`connected_at`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import orjson

ROWS_PER_S: Final = 200
"""Repeating rows that one bridge writes in a second; fleets of up to 2000 agents to a bridge have
each of their statuses written."""
REPEAT_S_MAX: Final = 60.0
"""Longest time without a row of a device that reports; the operations API knows it
(`AGENT_OFFLINE_AFTER_MS`)."""
DEVICES_MAX: Final = 100_000
"""Devices remembered; of further ones the least recent is forgotten, and its next status is
written."""
_REPEATING: Final = frozenset(
    {"sent_at", "received_at", "backlog_readings", "backlog_bytes", "oldest_unacked_s", "times"}
)
"""What changes all the time."""


class StatusRows:
    """What of each device was written last, and when."""

    def __init__(self) -> None:
        self._written: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self.left_out = 0
        """Statuses in which nothing was new."""

    def is_wanted(self, key: str, value: bytes, now_s: float) -> bool:
        """Must this status be written? It counts as written then.

        `value`: a DeviceStatus as JSON.
        """
        status: dict[str, Any] = orjson.loads(value)
        lasting = ((name, str(fact)) for name, fact in status.items() if name not in _REPEATING)
        facts = hash((bool(status.get("backlog_readings")), *lasting))
        before = self._written.get(key)
        repeat_s = min(REPEAT_S_MAX, len(self._written) / ROWS_PER_S)
        # A device's clock is not exact: a tenth sooner is the same beat.
        if before is not None and before[0] == facts and now_s - before[1] < 0.9 * repeat_s:
            self.left_out += 1
            return False
        self._written[key] = (facts, now_s)
        self._written.move_to_end(key)
        if len(self._written) > DEVICES_MAX:
            self._written.popitem(last=False)
        return True
