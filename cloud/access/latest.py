"""The latest of a stream or a query: the last reading of each device, or the newest window of each group. Pure.

Of a device counts the highest (epoch, seq), so that a reading that came late replaces none that is newer; without them, what came last. Of
a group counts the newest window, and of that the last revision; a row that was withdrawn is none, and one whose window the query's
watermark has passed says that it is final. What nothing was heard of for `ttl_s` is
forgotten, and of more than `rows_max` the one that was heard of least lately.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from edgewake.cloud.log.decode import DATA, WATERMARK, Event

ROWS_MAX: Final = 10_000
"""Devices, or groups, of one stream or query; 1 to 2 KB each."""


@dataclass(frozen=True, slots=True)
class _Row:
    rank: tuple[Any, ...] | None
    event: Event
    heard_s: float


class Latest:
    """See the module. Seconds are of a clock that only grows."""

    def __init__(self, keys: Sequence[str] | None, *, ttl_s: float, rows_max: int = ROWS_MAX) -> None:
        """`keys`: the group columns of a query; None: a stream, whose key is the device."""
        self._keys = keys
        self._ttl_s = ttl_s
        self._rows_max = rows_max
        self._rows: OrderedDict[str, _Row] = OrderedDict()
        """At most `rows_max`, the one that was heard of least lately first."""
        self._passed = 0
        """Event time in ms up to which the query's windows are final, as far as it was said."""
        self.left_out = 0
        """Rows that were forgotten because there are too many."""

    def take(self, event: Event, now_s: float) -> None:
        """Take in the next event of the log."""
        if event.kind == WATERMARK:
            said = event.fields.get("watermark")
            self._passed = max(self._passed, said) if isinstance(said, int) else self._passed
        if event.kind != DATA:
            return
        key, rank = self._place(event.fields)
        known = self._rows.get(key)
        if known is not None and known.rank is not None and rank is not None and rank < known.rank:
            return
        self._rows[key] = _Row(rank, event, now_s)
        self._rows.move_to_end(key)
        if len(self._rows) > self._rows_max:
            self._rows.popitem(last=False)
            self.left_out += 1

    def rows(self, now_s: float) -> Iterator[bytes]:
        """JSON of each row, the one that was heard of least lately first."""
        for row in list(self._rows.values()):
            if row.heard_s < now_s - self._ttl_s:
                self._rows.popitem(last=False)
            elif row.event.fields.get("withdrawn") is not True:
                yield self._told(row.event)

    def _told(self, event: Event) -> bytes:
        """A row is told when it changes, and not once more when its window becomes final."""
        end = event.fields.get("window_end")
        if self._keys is None or event.fields.get("final") is not False or not isinstance(end, int) or end > self._passed:
            return event.data
        head, _, tail = event.data.rpartition(b'"final":false')
        return head + b'"final":true' + tail

    def _place(self, fields: Mapping[str, Any]) -> tuple[str, tuple[Any, ...] | None]:
        """The key, and what decides which of two is newer."""
        if self._keys is None:
            epoch, seq = fields.get("epoch"), fields.get("seq")
            return str(fields.get("device")), None if epoch is None or seq is None else (epoch, seq)
        window, revision = fields.get("window_start"), fields.get("revision")
        rank = None if window is None or revision is None else (window, revision)
        return json.dumps([fields.get(name) for name in self._keys]), rank
