"""Rows of queries that emit each window once (header `emit: final`), withheld until it is final.

Pure. They are on `ew.windows`, written in the transaction of the batch that made them, and removed
in the transaction that emits them: so a withheld row is neither lost nor emitted twice, whoever
goes on with the lane. What changes after that, because a window was opened again or repaired, is
emitted again with a higher revision, as every correction is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from edgewake.cloud.analysis.results import emit
from edgewake.cloud.analysis.results.emit import Batch, Broken, Output, Outputs
from edgewake.cloud.queries.query import Registered
from edgewake.protocol import topics
from edgewake.protocol.ops import result

PLACE: Final = "=final"
"""Begins their keys on `ew.windows`, where others begin with names of streams."""
BYTES_MAX: Final = 256 << 20
"""Bytes of keys and values that a query may withhold in the driver's memory: half a million rows.
With more it fails, for none of them may be emitted before its time, and none be left out."""
_END: Final = re.compile(rb'\{"query":"[^"]*","window_start":-?\d+,"window_end":(-?\d+)')
_OPEN: Final = re.compile(rb',"revision":\d+,"final":false')
_FINAL: Final = re.compile(rb',"revision":\d+,"final":true')


class Withheld:
    """Withholds the results of the queries of one lane."""

    def __init__(
        self, queries: Sequence[Registered], rows: Mapping[str, bytes] | None = None
    ) -> None:
        """`rows`: of `ew.windows` (state_parts.joined), whose keys begin with PLACE."""
        self._of = {one.topic: _Rows(one) for one in queries if one.query.emits_final}
        by_label = {one.label: one for one in (held.registered for held in self._of.values())}
        for key, value in (rows or {}).items():
            _, label, row = key.split("|", 2)
            if label in by_label:  # else: of another lane, or paused
                self._of[by_label[label].topic].put(row.encode(), value)

    def through(
        self, outputs: Iterable[Output | Outputs], batch: Batch, broken: Broken
    ) -> Iterator[Output | Outputs]:
        """Return what is emitted of a batch's outputs, and what becomes final by it, in order.

        What is final comes before the watermark that says so.
        """
        waiting = dict(self._of)
        for output in outputs:
            held = self._of.get(output.topic)
            if held is None:
                yield output
                continue
            for one in emit.each([output]):
                if result.is_watermark(one.key):
                    yield from held.released(batch)
                    waiting.pop(output.topic, None)
                    yield one
                else:
                    yield from held.taken(one)
        for held in waiting.values():
            yield from held.released(batch)
        for held in self._of.values():
            if held.bytes > BYTES_MAX:
                broken[held.registered.label] = (
                    f"more than {BYTES_MAX >> 20} MiB of rows wait for their windows to be final: "
                    "shorten windows or lateness, group by"
                    " less, or leave the header `emit` out"
                )


class _Rows:
    """The withheld rows of one query, by their windows' ends."""

    def __init__(self, registered: Registered) -> None:
        self.registered = registered
        self.bytes = 0
        self._ends: dict[bytes, int] = {}
        self._of_end: dict[int, dict[bytes, bytes]] = {}

    def put(self, key: bytes, value: bytes) -> None:
        self._drop(key)
        end = end_of(value)
        self._ends[key] = end
        self._of_end.setdefault(end, {})[key] = value
        self.bytes += len(key) + len(value)

    def _drop(self, key: bytes) -> bool:
        end = self._ends.pop(key, None)
        if end is None:
            return False
        self.bytes -= len(key) + len(self._of_end[end].pop(key))
        if not self._of_end[end]:
            del self._of_end[end]
        return True

    def taken(self, output: Output) -> Iterator[Output]:
        """Take a row that changed: emit it where it is final, else withhold it."""
        value = output.value or b""
        is_final, is_withdrawn = is_final_row(value), b',"withdrawn":true' in value
        if not is_final and not is_withdrawn:
            self.put(output.key, value)
            yield Output(topics.WINDOWS, row_key(self.registered, output.key), value)
            return
        was_held = self._drop(output.key)
        if was_held:
            yield Output(topics.WINDOWS, row_key(self.registered, output.key), None)
        # Without `reopen` a window has no row before the one that is final, so nothing has to be
        # withdrawn.
        if is_final and (not is_withdrawn or (self.registered.query.reopen_ms and not was_held)):
            yield output

    def released(self, batch: Batch) -> Iterator[Output]:
        """The rows of windows that are final now, the earliest end first."""
        passed = emit.watermark(self.registered.query, batch.top)
        if passed is None:
            return
        for end in sorted(end for end in self._of_end if end <= passed):
            for key, value in list(self._of_end[end].items()):
                self._drop(key)
                yield Output(topics.WINDOWS, row_key(self.registered, key), None)
                yield Output(self.registered.topic, key, as_final(value, batch.revision))


def row_key(registered: Registered, key: bytes) -> bytes:
    """A row's key on `ew.windows`."""
    return f"{PLACE}|{registered.label}|".encode() + key


def begin_of(key: str) -> int:
    """Where the window begins of a row that is held back, ms, by its key on `ew.windows`."""
    return int(json.loads(key.split("|", 2)[2])[0])


def is_final_row(value: bytes) -> bool:
    """Does a result say that its window is final?"""
    return _FINAL.search(value) is not None


def end_of(value: bytes) -> int:
    """Return where a result's window ends, ms. Raises ValueError for what is not a result."""
    match = _END.match(value)
    if match is None:
        raise ValueError(f"no result: {value[:100]!r}")
    return int(match[1])


def as_final(value: bytes, revision: int) -> bytes:
    """The row, marked as final under this revision."""
    return _OPEN.sub(b',"revision":%d,"final":true' % revision, value, count=1)


def parted(
    registered: Registered, computed: Iterable[Output]
) -> tuple[list[Output], dict[bytes, Output]]:
    """Split computed rows into those that may be emitted and those to withhold.

    The latter are by their keys on `ew.windows`; a query that emits each change has none.
    """
    emitted, held = [], {}
    for output in computed:
        if registered.query.emits_final and not is_final_row(output.value or b""):
            key = row_key(registered, output.key)
            held[key] = Output(topics.WINDOWS, key, output.value)
        else:
            emitted.append(output)
    return emitted, held
