"""A reading completed with its table's row and with values of the device's earlier readings.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson
import pyarrow as pa

from edgewake.cloud.analysis.folds.placed import PLACE, item
from edgewake.cloud.analysis.folds.slots import At, Value
from edgewake.cloud.analysis.folds.table_versions import Versions, key_text
from edgewake.cloud.analysis.plan.table_rows import (
    TableRecord,
    Unreadable,
    foreign_key,
    foreign_row,
    rows_of,
    typed,
)
from edgewake.cloud.queries.query import History, Join, Query
from edgewake.cloud.queries.syntax.foreign_table import KEY
from edgewake.cloud.queries.terms.evaluate import Evaluated, Row, evaluated
from edgewake.cloud.queries.terms.expressions import READING
from edgewake.cloud.queries.terms.functions import BOOLEAN, NUMBER, TEXT_CHARS_MAX, TIME, Kind
from edgewake.cloud.queries.terms.lookback import Result

OF_ALL: Final = ""
"""The device under which is kept what belongs to all; no device has such a name."""
HISTORY: Final = "~"
"""Begins the key of a device's histories, where those of tables are JSON."""
DEVICES_MAX: Final = 100_000
"""Devices of a query whose histories are kept; beyond it the device that was silent longest starts
again."""
_READ_TO: Final = "@"
"""How far the table of a query on `ew.windows` was read."""
_FAULTS: Final = "!"
"""How many records of that table could not be read."""


@dataclass
class Table:
    """A query's table."""

    join: Join
    versions: Versions = field(default_factory=Versions)
    read_to: dict[int, int] = field(default_factory=dict)
    """Partition → offset of the next record."""

    unreadable: int = 0
    """Records of a foreign topic that were no rows; `why`: the last one and its fault."""
    why: str = ""

    @property
    def topic(self) -> str:
        """Where its rows come from."""
        return self.join.topic

    def put(self, one: TableRecord, closed: int | None) -> None:
        """A record of its topic."""
        if self.join.foreign:
            self._put_foreign(one, closed)
            return
        columns = self.join.columns
        for row in rows_of(self.topic, one.key, one.value):
            values = {name: typed(row.columns.get(name), kind) for name, kind in columns}
            place = key_text([values[name] for _, name in self.join.keys])
            if place is not None:
                self.versions.put(
                    place, row.since, [values[name] for name, _ in columns], closed=closed
                )

    def _put_foreign(self, one: TableRecord, closed: int | None) -> None:
        """Store a record of a foreign topic. One that is not a valid row removes its key's row.

        The row that the key had before no longer holds.
        """
        values: list[Any] | None = None
        place = None
        try:
            key = foreign_key(one)
            place = key_text([key])
            if one.value is not None:
                own = {KEY: key, "event_time": one.time_ms}
                row = {
                    **foreign_row(
                        one.value,
                        [(name, kind) for name, kind in self.join.columns if name not in own],
                    ),
                    **own,
                }
                values = [row[name] for name, _ in self.join.columns]
        except Unreadable as error:
            self.unreadable += 1
            self.why = f"partition {one.partition}, offset {one.offset}: {error}"
        if place is not None:
            self.versions.put(place, one.time_ms, values, closed=closed)

    @property
    def remark(self) -> str:
        """For people: what is wrong with the table's topic."""
        found = (
            f"{self.unreadable} records of {self.topic} are invalid, the last one: {self.why}; "
            "their keys have had no row since then"
        )
        return found if self.unreadable else ""

    def dump(self) -> dict[str, bytes | None]:
        """What changed since the last time."""
        read_to = orjson.dumps(self.read_to, option=orjson.OPT_NON_STR_KEYS)
        faults = {_FAULTS: orjson.dumps([self.unreadable, self.why])} if self.unreadable else {}
        return self.versions.dump() | {_READ_TO: read_to} | faults

    def load(self, key: str, value: Any) -> None:
        """The reverse of `dump`."""
        if key == _READ_TO:
            self.read_to = {int(partition): offset for partition, offset in value.items()}
        elif key == _FAULTS:
            self.unreadable, self.why = value
        else:
            self.versions.load(key, value)


@dataclass
class Histories:
    """What a query remembers of each device's readings."""

    calls: tuple[History, ...]
    of: dict[str, list[Any]] = field(default_factory=dict)
    """Device, or OF_ALL → a state for each call. The device without a reading for longest is the
    first."""
    changed: set[str] = field(default_factory=set)
    forgotten: int = 0
    """Devices so far that were forgotten because there are more than are kept."""

    def step(self, device: str, t: int, values: Sequence[Any]) -> list[Result]:
        """The results for one more reading, whose expressions have these values."""
        owners = [OF_ALL if call.past.is_of_all else device for call in self.calls]
        # Taken out and put back, so that the one without a reading for longest is the first.
        states = {
            owner: self.of.pop(owner, []) or [None] * len(self.calls)
            for owner in dict.fromkeys(owners)
        }
        results: list[Result] = []
        for i, (call, owner, value) in enumerate(zip(self.calls, owners, values, strict=True)):
            state, result = call.past.step(states[owner][i], t, value)
            states[owner] = [*states[owner][:i], state, *states[owner][i + 1 :]]
            results.append(result)
        self.of |= states
        self.changed.update(states)
        if len(self.of) > DEVICES_MAX + (OF_ALL in self.of):
            oldest = next(one for one in self.of if one != OF_ALL)
            del self.of[oldest]
            self.changed.add(oldest)
            self.forgotten += 1
        return results

    def dump(self) -> dict[str, bytes | None]:
        """What changed since the last time."""
        found = {
            f"{HISTORY}{one}": orjson.dumps(self.of[one]) if one in self.of else None
            for one in sorted(self.changed)
        }
        self.changed.clear()
        return found

    def load(self, key: str, value: list[Any]) -> None:
        """The reverse of `dump`."""
        self.of[key.removeprefix(HISTORY)] = value


class CompletedReading(NamedTuple):
    """What a query computes of a reading."""

    t: int
    group: str
    """JSON."""
    numbers: list[Value]
    """Its conditions' and aggregates'."""
    values: dict[str, Any]
    """Its columns, where readings are rows."""
    is_complete: bool = True
    """Is it known that no other row belongs to it?"""


class Computed:
    """What a query computes of a reading and all that belongs to it, e.g. its table's row."""

    def __init__(self, query: Query, names: Sequence[str]) -> None:
        """`names`: of a row's values, as the query's expressions call them."""
        at = {name: i for i, name in enumerate(names)}
        self._time = at[query.window.time]
        self._where = None if query.where_after is None else evaluated(query.where_after, at)
        self._groups: list[tuple[str, Evaluated]] | None = None
        if not query.is_rows:
            self._groups = [(key.name, evaluated(key.expression, at)) for key in query.keys]
        self._numbers = [
            evaluated(number, at) for number in (*query.conditions, *query.numbers, *query.moments)
        ]
        self._extremes = [
            (evaluated(one.order, at), evaluated(one.value, at), one.kind) for one in query.extremes
        ]
        self._items = [evaluated(one, at) for one, _ in query.distinct]
        self._outputs = (
            []
            if query.aggregates
            else [(output.name, evaluated(output.expression, at)) for output in query.outputs]
        )

    def of(self, row: Row, identity: Mapping[str, str | None]) -> CompletedReading | None:
        """Complete a reading; None where it does not pass WHERE.

        `identity`: the group, where readings are rows.
        """
        if self._where is not None and self._where(row) is not True:
            return None
        group = (
            identity
            if self._groups is None
            else {name: compute(row) for name, compute in self._groups}
        )
        numbers: list[Value] = [_number(compute(row)) for compute in self._numbers]
        numbers += [_at(order(row), value(row), kind) for order, value, kind in self._extremes]
        numbers += [item(_text(compute(row))) for compute in self._items]
        values = {name: compute(row) for name, compute in self._outputs}
        return CompletedReading(
            row[self._time],
            orjson.dumps(group, option=orjson.OPT_SORT_KEYS).decode(),
            numbers,
            values,
        )


class Completed:
    """A query's readings."""

    def __init__(
        self, query: Query, table: Table | None, histories: Histories, fields: Sequence[str]
    ) -> None:
        """`fields`: of a reading, beside READING."""
        self._table, self._histories = table, histories
        self._names = (*READING, *fields)
        columns = (
            ()
            if table is None
            else tuple(f"{table.join.table}.{name}" for name, _ in table.join.columns)
        )
        self._nothing: list[Any] = [None] * len(columns)
        names = (*self._names, *columns, *(f".{i}" for i in range(len(query.history))))
        at = {name: i for i, name in enumerate(names)}
        if table is not None:
            kinds = dict(table.join.columns)
            self._key = [(at[ours], kinds[theirs]) for ours, theirs in table.join.keys]
        self._calls = [evaluated(call.expression, at) for call in query.history]
        self._computed = Computed(query, names)

    def rows(self, mine: pa.Table) -> Iterator[CompletedReading]:
        """Yield the readings that have their table's row and pass WHERE.

        `mine`: PLACE and reading (JSON) of each, in the order of the log.
        """
        places = zip(*[mine[name].to_pylist() for name in PLACE], strict=True)
        for place, text in zip(places, mine["reading"].to_pylist(), strict=True):
            reading = orjson.loads(text)
            row = self._completed([reading[name] for name in self._names])
            found = (
                None
                if row is None
                else self._computed.of(
                    row, {"device": row[0], "reading": ":".join(map(str, place))}
                )
            )
            if found is not None:
                yield found

    def _completed(self, reading: list[Any]) -> Row | None:
        results: list[Result] = []
        if self._calls:  # also of a reading without its row: it is one of the readings before
            results = self._histories.step(
                reading[0], reading[1], [compute(reading) for compute in self._calls]
            )
        if self._table is None:
            return [*reading, *results]
        key = key_text([typed(reading[at], kind) for at, kind in self._key])
        found = self._table.versions.at(key, reading[1])
        if found is None and not self._table.join.is_left:
            return None
        return [*reading, *(self._nothing if found is None else found), *results]


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _text(value: Any) -> str | None:
    """Text by which values are told apart; 1 and 1.0 are the same value."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return repr(float(value))
    return str(value)


def _at(order: Any, value: Any, kind: Kind) -> At | tuple[()]:
    """A reading of an extreme, as Spark makes it (tags.extreme_of)."""
    if order is None or value is None:
        return ()
    if kind in (None, NUMBER, TIME):
        return float(order), float(value), None
    return float(order), None, (str(value).lower() if kind is BOOLEAN else value)[:TEXT_CHARS_MAX]
