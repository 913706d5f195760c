"""A query as frozen values: what remains of a query file when everything in it was checked.

Nothing here reads or runs anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from edgewake.cloud.queries.terms.expressions import TIMES
from edgewake.cloud.queries.terms.functions import Kind
from edgewake.cloud.queries.terms.lookback import Past
from edgewake.cloud.queries.terms.table_columns import topic_of
from edgewake.cloud.queries.terms.tree import Expression, fields_of
from edgewake.cloud.queries.terms.windows import Window
from edgewake.protocol.topics import query_topic

NUMBERS_PER_TAG: Final = 2
"""Double slots of a tag. Measured: one and two cost the same, four cost a tenth more."""


@dataclass(frozen=True, slots=True)
class Key:
    """A GROUP BY column."""

    name: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Unpivot:
    """FROM stream UNPIVOT (value FOR metric IN (fields)): one row for each non-null field."""

    value: str
    metric: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Within:
    """The bounds of a partner's time relative to a reading's, in ms; less than 0 is earlier."""

    earliest_ms: int
    latest_ms: int


@dataclass(frozen=True, slots=True)
class Join:
    """JOIN table ON …: the row with the same key that was the latest at the reading's time.

    The table is another stream, or the devices.

    With `within`: of another stream all readings with the same key that are so much later or
    earlier, its partners.
    """

    table: str
    """The other stream, or `devices`."""
    keys: tuple[tuple[str, str], ...]
    """Keys of the reading → keys of the table; all are equal."""
    is_left: bool
    """Does a reading without a row stay, with nulls? Otherwise it is dropped."""
    columns: tuple[tuple[str, Kind], ...] = ()
    """The columns of the table that the query reads, keys included, sorted; expressions call them
    `table.column`."""
    within: Within | None = None
    foreign: str = ""
    """The topic of somebody else's that has the table's rows; empty where they are ours."""

    @property
    def topic(self) -> str:
        """Where the table's rows are."""
        return self.foreign or topic_of(self.table, dict(self.columns))


@dataclass(frozen=True, slots=True)
class History:
    """A function of a device's earlier readings.

    Expressions call it `.0`, `.1` …, by its place in the query.
    """

    past: Past
    expression: Expression


@dataclass(frozen=True, slots=True)
class Shed:
    """When a query leaves readings out, and which it never does (header `shed`)."""

    above_ms: int
    """The age at which readings are left out: the time since the next reading to process was
    received, in ms."""
    unless: Expression | None = None
    """Readings for which it is true are always taken."""


@dataclass(frozen=True, slots=True)
class Extreme:
    """The value of the reading in which `order` is largest or smallest.

    Such are max_by, min_by, last, first, and max and min of texts.
    """

    order: Expression
    value: Expression
    kind: Kind


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A value that a window and group has.

    `slot` counts within the list that its function reads, e.g. numbers or quantiles.
    """

    name: str
    """What outputs call it: `#0`, `#1` …, which no column can be called."""
    function: str
    """count_all, count, sum, avg, min, max, variance, most, least, distinct, quantile, quantiles,
    top_k or mode."""
    slot: int = 0
    parameters: tuple[float, ...] = ()
    """The ranks of quantiles, or k."""
    kind: Kind = None
    """Type of a top_k's items, of a mode, or of an extreme's value."""


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the result: an aggregate, or an expression over aggregates, keys and times."""

    name: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Order:
    """One expression of ORDER BY."""

    expression: Expression
    descending: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A checked query.

    Its aggregates are slots of mergeable partials: equal expressions share one.
    """

    name: str
    description: str
    lateness_ms: int
    """The time from a window's end until it is final: the header's, and for two joined streams as
    long as a partner may be later."""
    stream: str
    """The stream of FROM; the first one of a UNION ALL."""
    window: Window
    on_change: tuple[str, ...] = ()
    """Where a reading is a row only if a column differs from that of the reading before with the
    same values in these fields (header `on_change`): the fields, `device` among them."""
    others: tuple[str, ...] = ()
    """Streams whose readings count as if they were the first one's: of a UNION ALL."""
    is_table: bool = False
    """Is FROM a table, too: does of each of `keys` only the latest reading count? Then the result
    is a table as well."""
    reopen_ms: int = 0
    emits_final: bool = False
    """Is a window told once, when it is final, and not with each change (header `emit`)?"""
    shed: Shed | None = None
    unpivot: Unpivot | None = None
    join: Join | None = None
    history: tuple[History, ...] = ()
    where_after: Expression | None = None
    """What of WHERE needs the table's row or the history; `where` has the rest."""
    where: Expression | None = None
    keys: tuple[Key, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    outputs: tuple[Output, ...] = ()
    having: Expression | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None
    """Rows of a window that are told, of all its groups."""
    conditions: tuple[Expression, ...] = ()
    """What decides a pattern's windows."""
    numbers: tuple[Expression, ...] = ()
    moments: tuple[Expression, ...] = ()
    extremes: tuple[Extreme, ...] = ()
    distinct: tuple[tuple[Expression, Kind], ...] = ()
    quantiles: tuple[Expression, ...] = ()
    tops: tuple[tuple[Expression, Kind], ...] = ()

    @property
    def is_completed(self) -> bool:
        """Do its readings need what only the driver knows: a table's row, or what came before?"""
        return self.join is not None or bool(self.history) or self.is_table or bool(self.on_change)

    @property
    def completed_by(self) -> str:
        """What makes `is_completed` true, in the words of a query file."""
        if self.join is not None:
            return "JOIN"
        if self.history:
            return self.history[0].past.function
        return "header on_change" if self.on_change else "header table"

    @property
    def is_paired(self) -> bool:
        """Does it join two streams within a time?"""
        return self.join is not None and self.join.within is not None

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that its results have of their own."""
        return (
            "window_start",
            "window_end",
            *self.key_names,
            *(output.name for output in self.outputs),
        )

    @property
    def is_rows(self) -> bool:
        """Is each reading a row of its own, without aggregates?

        Its window is then the reading's millisecond.
        """
        return not self.aggregates and not self.is_table

    @property
    def compared(self) -> tuple[Output, ...]:
        """The columns that tell a reading from the one before: all that are not times."""
        times = set(TIMES.values())
        return tuple(one for one in self.outputs if times.isdisjoint(fields_of(one.expression)))

    @property
    def key_names(self) -> tuple[str, ...]:
        """Columns that tell a window's rows apart."""
        number = ("window_number",) if self.window.count else ()
        if self.is_rows:
            return ("device", "reading", "partner") if self.is_paired else ("device", "reading")
        return (*(key.name for key in self.keys), *number)

    @property
    def kept_ms(self) -> int:
        """How long after its end a window takes readings, and its state is kept."""
        return self.lateness_ms + self.reopen_ms

    @property
    def waits_ms(self) -> int:
        """The delay within which a reading of two joined streams may come; later ones are late."""
        partner_ms = (
            0
            if self.join is None or self.join.within is None
            else max(0, self.join.within.latest_ms)
        )
        return self.kept_ms - partner_ms

    @property
    def has_sketches(self) -> bool:
        """Does it need more than counts, sums, minima and maxima: sketches, moments or extremes?"""
        return any(self._lists()[1:])

    @property
    def only_counts_distinct(self) -> bool:
        """Is a number of different values all that it needs more?"""
        return bool(self.distinct) and not any(
            (self.moments, self.extremes, self.quantiles, self.tops)
        )

    @property
    def parts(self) -> int:
        """Rows of partials that one (window, key) needs.

        Each has NUMBERS_PER_TAG numbers and one of each other kind.
        """
        numbers, *others = self._lists()
        return max(1, -(-len(numbers) // NUMBERS_PER_TAG), *map(len, others))

    def _lists(self) -> tuple[tuple[object, ...], ...]:
        return self.numbers, self.moments, self.extremes, self.distinct, self.quantiles, self.tops

    @property
    def fields(self) -> frozenset[str]:
        """The stream's fields that it reads."""
        used = {name for expression in self._expressions() for name in fields_of(expression)}
        if self.unpivot is not None:
            used = used - {self.unpivot.value, self.unpivot.metric} | set(self.unpivot.fields)
        keys = () if self.join is None else self.join.keys
        used = {name for name in used if "." not in name} | {name for name, _ in keys}
        used.update(self.on_change)
        return frozenset(used - {"device", *TIMES.values()})

    @property
    def table_columns(self) -> frozenset[str]:
        """The columns of the joined table that it reads."""
        if self.join is None:
            return frozenset()
        table = f"{self.join.table}."
        used = {
            name.removeprefix(table)
            for one in self._expressions()
            for name in fields_of(one)
            if name.startswith(table)
        }
        return frozenset(used | {name for _, name in self.join.keys})

    def _expressions(self) -> list[Expression]:
        where = [one for one in (self.where, self.where_after) if one is not None]
        where += [call.expression for call in self.history]
        where += (
            [self.shed.unless] if self.shed is not None and self.shed.unless is not None else []
        )
        texts = [expression for expression, _ in (*self.distinct, *self.tops)]
        extremes = [
            expression for extreme in self.extremes for expression in (extreme.order, extreme.value)
        ]
        rows = [] if self.aggregates else [output.expression for output in self.outputs]
        return [
            *rows,
            *where,
            *(key.expression for key in self.keys),
            *self.conditions,
            *self.numbers,
            *self.moments,
            *extremes,
            *self.quantiles,
            *texts,
        ]


@dataclass(frozen=True, slots=True)
class Registered:
    """A query with its identity.

    One that is registered again under the same name is another query, and does not take over the
    old state.
    """

    query: Query
    registered_at: int
    is_isolated: bool = False
    """Does it have a lane of its own, because others waited for it (schedule/slow.py)?"""

    @property
    def id(self) -> int:
        """What stands for it in the state: 63 bits of a hash."""
        text = f"{self.query.name}|{self.registered_at}".encode()
        return int.from_bytes(blake2b(text, digest_size=8).digest()) >> 1

    @property
    def label(self) -> str:
        """What stands for it in the lane's record."""
        return f"{self.query.name}@{self.registered_at}"

    @property
    def topic(self) -> str:
        """Kafka topic of its results."""
        return query_topic(self.query.name, self.registered_at)
