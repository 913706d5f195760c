"""Windows that the driver folds one reading at a time.

It makes the results of a batch and the records of open windows for `ew.windows`. All kinds of
queries whose readings pass through the driver share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson
import pyarrow as pa

from edgewake.cloud.analysis.folds import patterns, sequences
from edgewake.cloud.analysis.folds.open_keys import OpenKeys
from edgewake.cloud.analysis.folds.sequences import Changed, KeyState, Open
from edgewake.cloud.analysis.folds.slots import At, Distinct, Ends, Slot
from edgewake.cloud.analysis.results import emit, finish
from edgewake.cloud.analysis.results.emitted_rows import EmittedRows
from edgewake.cloud.queries.query import NUMBERS_PER_TAG, Registered
from edgewake.cloud.queries.terms.windows import Rule, Window
from edgewake.protocol import topics
from edgewake.protocol.ops import result

OpenWindows = dict[str, KeyState]
"""One query's groups (JSON) → what is open. The group touched longest ago is the first."""


def dumped(windows: OpenWindows) -> dict[str, bytes]:
    """All of them, as they stand on `ew.windows`."""
    return {key: orjson.dumps(sequences.dump(state)) for key, state in windows.items()}


def loaded(value: bytes) -> KeyState:
    """What a row of `ew.windows` says."""
    return sequences.load(orjson.loads(value), len(value))


class Fold:
    """One query's share of a batch."""

    def __init__(
        self, place: str, registered: Registered, states: dict[str, KeyState], batch: emit.Batch
    ) -> None:
        self._place, self._registered, self._states, self._batch = place, registered, states, batch
        self._window = registered.query.window
        self._changed: dict[str, Changed] = {}
        self._new: set[str] = set()
        self._room = OpenKeys(states)

    def outputs(
        self, values: Iterable[tuple[int, str, sequences.Values]], broken: emit.Broken
    ) -> Iterator[emit.Output]:
        """Results and states.

        `values`: time, group (JSON) and numbers of each reading, in the order of the log.
        """
        query = self._registered.query
        before, after = (
            emit.closed(query, self._batch.top_before),
            emit.closed(query, self._batch.top),
        )
        for t, key, x in values:
            if before is None or t > before or not self._window.is_sequence:
                self._add(t, key, x)
        passed = None if self._batch.top is None else self._batch.top - query.lateness_ms
        for key, state in self._states.items() if self._window.rule is Rule.ABSENCE else ():
            if patterns.is_absent(state, self._window, passed):
                patterns.raise_absence(state, self._changed.setdefault(key, Changed()))
        yield from self._withdrawn()
        yield from self._results(broken)
        gone = [
            key
            for key, state in self._states.items()
            if not sequences.close(state, self._window, after)
        ]
        for key in gone:
            del self._states[key]
        texts = {key: self._room.record(key) for key in self._changed if key in self._states}
        if texts:
            self._room.forget_beyond_bytes()
        for key in dict.fromkeys((*self._changed, *gone, *self._room.forgotten)):
            # It came and went within the batch: nothing is written of it.
            if key not in self._states and key in self._new:
                continue
            value = texts[key] if key in self._states else None
            yield emit.Output(
                topics.WINDOWS, f"{self._place}|{self._registered.label}|{key}".encode(), value
            )
        if self._room.lacks_before:
            lacks_before, label = self._batch.lacks_before, self._registered.label
            lacks_before[label] = max(self._room.lacks_before, lacks_before.get(label, 0))

    def _add(self, t: int, key: str, x: sequences.Values) -> None:
        # What was forgotten may be written down.
        if key not in self._states and key not in self._room.forgotten:
            self._new.add(key)
        state = self._states.pop(key, None) or KeyState()
        self._states[key] = state
        changed = self._changed.setdefault(key, Changed())
        if self._window.rule is None:
            sequences.add(state, self._window, t, x, changed)
        else:
            conditions = len(self._registered.query.conditions)
            met = [None if value is None else value == 1 for value in x[:conditions]]
            patterns.add(state, self._window, t, met, x[conditions:], changed)
        self._room.forget_beyond_count()

    def _group(self, key: str, one: Open) -> str:
        """The group columns as JSON; of a window by count with its number."""
        if not self._window.count:
            return key
        return orjson.dumps(
            orjson.loads(key) | {"window_number": one.number}, option=orjson.OPT_SORT_KEYS
        ).decode()

    def _results(self, broken: emit.Broken) -> Iterator[emit.Output]:
        windows = [
            (self._group(key, one), one)
            for key, changed in self._changed.items()
            for one in changed.windows.values()
        ]
        over = {
            (changed.windows[place].start, self._group(key, changed.windows[place]))
            for key, changed in self._changed.items()
            for place in changed.over
        }
        emitted_rows, batch = self._emitted_rows(windows), self._batch
        if self._window.is_sequence:
            batch = replace(batch, emitted_rows={self._registered.label: emitted_rows})
        table = _table(self._registered, windows)
        for output in emit.each(finish.results(table, [self._registered], (), batch, broken)):
            if not self._window.is_sequence:
                yield output
                continue
            start, group = _place(output.key)
            value = output.value
            if (start, group) in over and value is not None:
                head, _, tail = value.rpartition(b'"final":false')
                value = head + b'"final":true' + tail
            yield output._replace(key=result.result_key(start, 0, group), value=value)
        for group, one in windows:
            one.is_emitted = self._registered.query.having is None or emitted_rows.was_emitted(
                (one.start, _end(self._window, one), group)
            )

    def _emitted_rows(self, windows: Sequence[tuple[str, Open]]) -> EmittedRows:
        """The emitted rows of these windows, so that HAVING can withdraw those that fail now."""
        found = EmittedRows()
        for group, one in windows if self._registered.query.having is not None else ():
            if one.is_emitted:
                found.mark(
                    (one.start, _end(self._window, one), group), "told", self._batch.revision - 1
                )
        return found

    def _withdrawn(self) -> Iterator[emit.Output]:
        name, revision = self._registered.query.name, self._batch.revision
        for key, changed in self._changed.items():
            for start in sorted(changed.withdrawn):
                columns = {
                    "query": name,
                    "window_start": start,
                    "window_end": start,
                    **orjson.loads(key),
                }
                value = orjson.dumps(
                    columns | {"withdrawn": True, "revision": revision, "final": False}
                )
                yield emit.Output(self._registered.topic, result.result_key(start, 0, key), value)


def _end(window: Window, one: Open) -> int:
    return one.last + (window.gap_ms or 1)


def _place(key: bytes) -> tuple[int, str]:
    start, _, group = key.decode()[1:-1].split(",", 2)
    return int(start), group


def _table(registered: Registered, windows: Sequence[tuple[str, Open]]) -> pa.Table:
    """The windows as partials (partials.aggregate), which is what results are made of."""
    query = registered.query
    numbers, moments, extremes = len(query.numbers), len(query.moments), len(query.extremes)
    rows: list[dict[str, Any]] = []
    for part in range(query.parts):
        for group, one in windows:
            end = _end(query.window, one)
            row = {
                "query": registered.id,
                "part": part,
                "window_start": one.start,
                "window_end": end,
                "key": group,
            }
            row["readings"] = one.readings
            for i, slot in enumerate(
                one.slots[:numbers][part * NUMBERS_PER_TAG : (part + 1) * NUMBERS_PER_TAG]
            ):
                assert isinstance(slot, Slot)
                row |= {
                    f"count_{i}": slot.count,
                    f"sum_{i}": slot.sum if slot.count else None,
                    f"min_{i}": slot.min,
                    f"max_{i}": slot.max,
                }
            for slot in one.slots[numbers : numbers + moments][part : part + 1]:
                assert isinstance(slot, Slot)
                row["variance"] = slot.variance
            for slot in one.slots[numbers + moments : numbers + moments + extremes][
                part : part + 1
            ]:
                assert isinstance(slot, Ends)
                row |= {"most": _value(slot.most), "least": _value(slot.least)}
            for slot in one.slots[numbers + moments + extremes :][part : part + 1]:
                assert isinstance(slot, Distinct)
                row["distinct"] = slot.count
            rows.append(row)
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def _value(at: At | None) -> dict[str, Any] | None:
    return None if at is None else {"number": at[1], "text": at[2]}


_VALUE: Final = pa.struct([("number", pa.float64()), ("text", pa.string())])
_SCHEMA: Final = pa.schema(
    [
        ("query", pa.int64()),
        ("part", pa.int32()),
        ("window_start", pa.int64()),
        ("window_end", pa.int64()),
        ("key", pa.string()),
    ]
    + [
        ("readings", pa.int64()),
        ("variance", pa.float64()),
        ("most", _VALUE),
        ("least", _VALUE),
        ("distinct", pa.int64()),
    ]
    + [
        (f"{name}_{i}", pa.int64() if name == "count" else pa.float64())
        for i in range(NUMBERS_PER_TAG)
        for name in ("count", "sum", "min", "max")
    ]
)
