"""Shared execution: one aggregation serves all queries.

Each reading is tagged with every (query, window, key) that it belongs to.

A tag is a row of the state: which query, which window, which key, and the values for its slots. A
query whose aggregates need more than NUMBERS_PER_TAG expressions (or several sketches of a kind)
gets several tags for each window, told apart by `part`. Hopping windows and UNPIVOT are more tags
as well. Tags are fixed when the lane starts; the state's schema never changes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import itemgetter
from typing import Final, TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.plan import tag_table
from edgewake.cloud.analysis.plan.columns import Resolve, as_text, column
from edgewake.cloud.analysis.plan.decode import IN_FRAME
from edgewake.cloud.analysis.plan.frame_sums import SUMS, Shape, Sums
from edgewake.cloud.analysis.plan.shed_columns import Taking
from edgewake.cloud.analysis.plan.tag_table import Line
from edgewake.cloud.analysis.plan.window_columns import bounds, contains
from edgewake.cloud.queries.lane_kind import ITEMS, LaneKind, kind_of
from edgewake.cloud.queries.query import NUMBERS_PER_TAG, Extreme, Query, Registered
from edgewake.cloud.queries.terms.expressions import TIMES
from edgewake.cloud.queries.terms.functions import NUMBER, TEXT_CHARS_MAX, TIME, Kind
from edgewake.cloud.queries.terms.tree import (
    Call,
    Expression,
    Field,
    Literal,
    fields_of,
    substitute,
)
from edgewake.protocol.frames.field_type import FieldType

TAG_COLUMNS: Final = ("expires", "query", "part", "window_start", "window_end", "key")
TAG: Final = "$tag"
SHED_PART: Final = -1
"""Part of the tags that count what was left out of a window, of all groups: one for each reading
and window."""

_OF_THE_FRAME: Final = frozenset({"device", "received_at", "sent_at"})
"""The columns that all readings of a frame share."""
_TIMES: Final = frozenset(TIMES.values())

Keys = tuple[tuple[str, Expression], ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """One row that a reading becomes."""

    id: int
    part: int
    hops: int
    """How many slides before the reading's latest window this one begins."""
    query: Query
    where: Expression | None
    keys: Keys
    numbers: tuple[Expression, ...]
    moment: Expression | None
    extreme: Extreme | None
    distinct: tuple[Expression, Kind] | None
    quantile: Expression | None
    top: tuple[Expression, Kind] | None

    @property
    def shape(self) -> Shape | None:
        """What it takes of a frame that lies in one window; None: it looks at single readings."""
        window = self.query.window
        # Where a zone's clocks go back over midnight, what is between two readings of a day may be
        # of another day.
        is_one_run = (
            window.divides
            and not window.is_sequence
            and (window.unit in (None, "all") or window.zone == "UTC")
        )
        chooses = self.where is not None and not set(fields_of(self.where)) <= _OF_THE_FRAME
        item = self._frame_item
        of_one = (
            self.moment,
            self.extreme,
            None if item else self.distinct,
            self.quantile,
            self.top,
        )
        names = [
            number.name
            for number in self.numbers
            if isinstance(number, Field) and number.name not in _TIMES
        ]
        are_fields = len(names) == len(self.numbers)
        sums = (
            is_one_run
            and not chooses
            and of_the_frame(self.keys)
            and are_fields
            and not any(of_one)
        )
        return Shape(window, tuple(names), item) if sums else None

    @property
    def _frame_item(self) -> tuple[str, FieldType] | None:
        """The field whose different values a frame's sketch may tell."""
        if self.distinct is None or kind_of(self.query) is not LaneKind.DISTINCT:
            return None
        expression, kind = self.distinct
        if not isinstance(expression, Field) or expression.name in _OF_THE_FRAME | _TIMES:
            return None
        return (
            (expression.name, kind)
            if isinstance(kind, FieldType) and kind is not FieldType.BOOLEAN
            else None
        )

    @property
    def is_plain(self) -> bool:
        """Does it take every reading, and sums of frames?

        Then nothing of it needs code of its own (tag_table).
        """
        return self.shape is not None and self.shape.item is None and self.where is None


def tags_of(registered: Registered) -> Iterator[Tag]:
    """All tags of a query."""
    query = registered.query
    for values in variants(query):
        where = where_of(query, values)
        keys = tuple((key.name, substitute(key.expression, values)) for key in query.keys)
        for part in range(query.parts):
            numbers = query.numbers[part * NUMBERS_PER_TAG : (part + 1) * NUMBERS_PER_TAG]
            for hops in range(query.window.hops):
                yield Tag(
                    id=registered.id,
                    part=part,
                    hops=hops,
                    query=query,
                    where=where,
                    keys=keys,
                    numbers=tuple(substitute(number, values) for number in numbers),
                    moment=None
                    if part >= len(query.moments)
                    else substitute(query.moments[part], values),
                    extreme=None
                    if part >= len(query.extremes)
                    else substituted(query.extremes[part], values),
                    distinct=_item(query.distinct, part, values),
                    quantile=None
                    if part >= len(query.quantiles)
                    else substitute(query.quantiles[part], values),
                    top=_item(query.tops, part, values),
                )


def variants(query: Query) -> list[Mapping[str, Expression]]:
    """Return what the two names of an UNPIVOT stand for, field by field.

    One empty mapping without UNPIVOT.
    """
    unpivot = query.unpivot
    if unpivot is None:
        return [{}]
    return [
        {unpivot.value: Field(field), unpivot.metric: Literal(field)} for field in unpivot.fields
    ]


def where_of(query: Query, values: Mapping[str, Expression]) -> Expression | None:
    """Return the condition of one variant: a reading without its field does not count."""
    where = None if query.where is None else substitute(query.where, values)
    if query.unpivot is None:
        return where
    present: Expression = Call("not", (Call("is_null", (values[query.unpivot.value],)),))
    return present if where is None else Call("and", (present, where))


def substituted(extreme: Extreme, values: Mapping[str, Expression]) -> Extreme:
    """The extreme for one field of an UNPIVOT."""
    return Extreme(
        substitute(extreme.order, values), substitute(extreme.value, values), extreme.kind
    )


def _item(
    items: Sequence[tuple[Expression, Kind]], part: int, values: Mapping[str, Expression]
) -> tuple[Expression, Kind] | None:
    if part >= len(items):
        return None
    expression, kind = items[part]
    return substitute(expression, values), kind


def key_columns(tags: Sequence[Tag]) -> Mapping[Keys, str]:
    """A column name for each distinct key of the lane: queries with equal keys share the work.

    No field can have such a name.
    """
    return {keys: f"$key_{i}" for i, keys in enumerate(dict.fromkeys(tag.keys for tag in tags))}


def of_the_frame(keys: Keys) -> bool:
    """Is the key the same for all readings of a frame? Then it is made once a frame."""
    return all(set(fields_of(expression)) <= {"device"} for _, expression in keys)


def key_json(keys: Keys, resolve: Resolve) -> Column:
    """The key as a JSON object, its names sorted, nulls included."""
    if not keys:
        return F.lit("{}")
    named = sorted(keys, key=itemgetter(0))
    return F.to_json(
        F.struct(*[column(expression, resolve).alias(name) for name, expression in named]),
        {"ignoreNullFields": "false"},
    )


def sums_for(tags: Sequence[Tag]) -> Sums | None:
    """The sums of frames; None where all tags look at single readings."""
    shapes = [tag.shape for tag in tags]
    summed = [shape for shape in shapes if shape is not None]
    if not summed:
        return None
    return Sums(tuple(dict.fromkeys(summed)), has_rows=len(summed) < len(tags))


def tagged(
    readings: DataFrame,
    tags: Sequence[Tag],
    names: Mapping[Keys, str],
    *,
    inputs: Sequence[str],
    takings: Mapping[int, Taking] | None = None,
    forgotten: str | None = None,
    sums: Sums | None = None,
) -> DataFrame:
    """One row for each tag of each reading; with `sums` one for each tag of a frame in its window.

    In: device, t, the fields and the frame's keys, with sums also sums.columns and the reading's
    number. Out: TAG_COLUMNS, x_0 … x_n (double), the `inputs` of SKETCH_INPUTS, with takings
    (query's id → what it takes; of a query that is missing, all) also `weight` (bigint), with sums
    in place of each x what partials.aggregate says. `forgotten`: the column with the event time
    (ms) up to which Spark forgets windows. Their tags are left out here already: Spark would look
    each of them up in its state first.
    """
    late_keys = [
        key_json(keys, F.col).alias(name) for keys, name in names.items() if not of_the_frame(keys)
    ]
    keyed = readings.select("*", *late_keys)
    lines = (
        []
        if sums is None or len(tags) == 1
        else [_line(tag, names[tag.keys]) for tag in tags if tag.is_plain]
    )
    others = [tag for tag in tags if not (lines and tag.is_plain)]
    makings = [
        _made(tag, names[tag.keys], inputs=inputs, takings=takings, forgotten=forgotten, sums=sums)
        for tag in others
    ]
    if sums is not None and lines:
        nothing = {
            name: _INPUT_OF[name](next(tag for tag in tags if tag.is_plain)) for name in inputs
        }
        keyed = (
            _exploded(keyed, makings, beside=~sums.is_whole_for_all | (F.col(IN_FRAME) == 0))
            if makings
            else keyed
        )
        each, columns = tag_table.joined(
            keyed, lines, sums, nothing=nothing, tag=TAG if makings else None, forgotten=forgotten
        )
    elif len(tags) == 1 and not takings:
        each, columns = _alone(keyed, makings[0])
    else:
        each, columns = (
            _exploded(keyed, makings),
            {name: F.col(f"`{TAG}`.{name}") for name in makings[0].columns},
        )
    # The metadata makes Spark evict a row when the stream's watermark passes `expires`: window end
    # plus the query's own lateness and the time in which a final window is opened again.
    expires = F.timestamp_millis(columns["expires_ms"]).alias(
        "expires", metadata={"spark.watermarkDelayMs": 0}
    )
    # Never null by schema: it would depend on which tags there are (a WHERE, a key), and Spark
    # refuses a state whose key changed so.
    place = [
        F.coalesce(columns[name], F.lit("" if name == "key" else 0)).alias(name)
        for name in TAG_COLUMNS[1:]
    ]
    values = [
        made.alias(name)
        for name, made in columns.items()
        if name not in ("expires_ms", *TAG_COLUMNS)
    ]
    return each.select(expires, *place, *values)


@dataclass(frozen=True, slots=True)
class _Made:
    """A tag of a reading as columns."""

    columns: Mapping[str, Column]
    condition: Column | None
    """The condition for the tag; None: always."""
    taking: Taking | None
    counts_left_out: bool
    """Is there another tag in its place for a reading that is not taken?"""


def _alone(readings: DataFrame, made: _Made) -> tuple[DataFrame, Mapping[str, Column]]:
    """Readings with the only tag that they have."""
    # What is the same in all rows Spark would not keep as a column, and name the state's key by its
    # value.
    nothing = F.pmod("t", F.lit(1).cast("bigint"))
    varied = {"part": (made.columns["part"] + nothing).cast("int")}
    return readings if made.condition is None else readings.where(made.condition), {
        **made.columns,
        **varied,
    }


def _exploded(
    readings: DataFrame, makings: Sequence[_Made], *, beside: Column | None = None
) -> DataFrame:
    """A row for each tag of each reading, in the column TAG.

    With `beside` one more where it is true, in which TAG is null.
    """
    # Each is a column, though an array would do: of many columns Spark makes several methods
    # (spark.sql.codegen.maxFields), and one that is longer than Java takes is not compiled at all.
    rows = {f"$row_{i}": _row(made) for i, made in enumerate(makings)}
    wide = readings.select("*", *[row.alias(name) for name, row in rows.items()])
    if beside is None:
        return wide.select(F.explode(F.array(*rows)).alias(TAG)).where(F.col(TAG).isNotNull())
    each = wide.select(
        *readings.columns, F.posexplode(F.array(*rows, F.lit(None))).alias("$place", TAG)
    )
    return each.where(F.col(TAG).isNotNull() | (beside & (F.col("$place") == len(rows))))


def _line(tag: Tag, key: str) -> Line:
    assert tag.shape is not None
    window = tag.query.window
    back_ms = tag.hops * window.slide_ms if window.unit is None else 0
    return Line(tag.id, tag.part, tag.shape, key, tag.query.kept_ms, back_ms)


def _row(made: _Made) -> Column:
    row = _struct(made.columns)
    if made.taking is not None:
        row = F.when(made.taking.is_taken, row)
        row = row.otherwise(_struct(_left_out(made.columns))) if made.counts_left_out else row
    return row if made.condition is None else F.when(made.condition, row)


def _made(
    tag: Tag,
    key: str,
    *,
    inputs: Sequence[str],
    takings: Mapping[int, Taking] | None,
    forgotten: str | None,
    sums: Sums | None,
) -> _Made:
    query = tag.query
    taking = None if takings is None else takings.get(tag.id)
    start, end = bounds(query.window, tag.hops)
    columns = {
        "expires_ms": end + query.kept_ms,
        "query": _outside(tag.id),
        "part": F.lit(tag.part),
        "window_start": start,
        "window_end": end,
        "key": F.col(key),
        **(_numbers(tag) if sums is None else _summed(tag, sums)),
    }
    columns |= {name: _INPUT_OF[name](tag) for name in inputs}
    if sums is not None and tag.shape is not None and tag.shape.item is not None:
        is_whole = sums.is_whole(tag.shape)
        columns |= {
            "item": F.when(~is_whole, columns["item"]),
            ITEMS: F.when(is_whole, sums.sketch(tag.shape.item)),
        }
    if takings is not None:
        columns["weight"] = F.lit(1).cast("bigint") if taking is None else taking.weight
    is_in = contains(query.window, tag.hops)
    conditions = [
        *([] if tag.where is None else [column(tag.where, F.col)]),
        *([] if is_in is None else [is_in]),
    ]
    conditions += [] if forgotten is None else [columns["expires_ms"] > F.col(forgotten)]
    conditions += (
        []
        if sums is None or tag.shape is None
        else [~sums.is_whole(tag.shape) | (F.col(IN_FRAME) == 0)]
    )
    return _Made(
        columns, reduce(operator.and_, conditions) if conditions else None, taking, tag.part == 0
    )


def _outside(number: int) -> Column:
    """A number that generated code does not contain.

    So a query that resembles an earlier one runs the code that was compiled for that.
    """
    # An item at a variable index is not folded into a constant, and the array is passed as an
    # object.
    return F.get(
        F.array(F.lit(number).cast("bigint")), F.pmod("t", F.lit(1).cast("bigint")).cast("int")
    )


def _numbers(tag: Tag) -> dict[str, Column]:
    return {f"x_{i}": _double(_at(tag.numbers, i)) for i in range(NUMBERS_PER_TAG)}


def _summed(tag: Tag, sums: Sums) -> dict[str, Column]:
    """The number of readings of the tag's row: one, or a whole frame's."""
    shape = tag.shape
    is_whole = F.lit(False) if shape is None else sums.is_whole(shape)
    fields = () if shape is None else shape.fields
    columns = {"readings": F.when(is_whole, sums.readings).otherwise(F.lit(1).cast("bigint"))}
    for i in range(NUMBERS_PER_TAG):
        x = _double(_at(tag.numbers, i))
        of_one = dict.fromkeys(SUMS, x) | {
            "count": F.when(x.isNotNull(), 1).otherwise(0).cast("bigint")
        }
        for what, value in of_one.items():
            columns[f"{what}_{i}"] = (
                F.when(is_whole, sums.value(what, fields[i])).otherwise(value)
                if i < len(fields)
                else value
            )
    return columns


def _struct(columns: Mapping[str, Column]) -> Column:
    return F.struct(*[made.alias(name) for name, made in columns.items()])


def _left_out(columns: Mapping[str, Column]) -> dict[str, Column]:
    """A tag for a reading that is left out: it has its window, and no group and no values."""
    counted = {"part": F.lit(SHED_PART), "key": F.lit(""), "weight": F.lit(1).cast("bigint")}
    empty = {name: F.when(F.lit(False), made) for name, made in columns.items()}
    return (
        empty
        | {name: columns[name] for name in ("expires_ms", "query", "window_start", "window_end")}
        | counted
    )


def extreme_of(extreme: Extreme | None) -> Column:
    """Return at, number and text of a reading; null where its order or value is null."""
    if extreme is None:
        return F.lit(None).cast("struct<at: double, number: double, text: string>")
    at, value = _double(extreme.order), column(extreme.value, F.col)
    is_number = extreme.kind in (None, NUMBER, TIME)
    number = value.cast("double") if is_number else F.lit(None).cast("double")
    text = (
        F.lit(None).cast("string")
        if is_number
        else F.substring(value.cast("string"), 1, TEXT_CHARS_MAX)
    )
    return F.when(
        at.isNotNull() & value.isNotNull(),
        F.struct(at.alias("at"), number.alias("number"), text.alias("text")),
    )


def _at(items: Sequence[T], i: int) -> T | None:
    return items[i] if i < len(items) else None


def _double(expression: Expression | None) -> Column:
    return (F.lit(None) if expression is None else column(expression, F.col)).cast("double")


def hash_of(item: tuple[Expression, Kind] | None) -> Column:
    """64 bits that differ as values do, null of nothing: what a sketch of different values takes.

    Texts would cost more.
    """
    if item is None:
        return F.lit(None).cast("bigint")
    value = column(item[0], F.col)
    return F.when(value.isNotNull(), F.xxhash64(value))


def text_of(item: tuple[Expression, Kind] | None) -> Column:
    """A value as a text, so that different ones are different; null of nothing."""
    return (F.lit(None) if item is None else as_text(column(item[0], F.col), item[1])).cast(
        "string"
    )


_INPUT_OF: Final[Mapping[str, Callable[[Tag], Column]]] = {
    "measure": lambda tag: _double(tag.moment),
    "extreme": lambda tag: extreme_of(tag.extreme),
    "item": lambda tag: hash_of(tag.distinct),
    ITEMS: lambda _: F.lit(None).cast("binary"),
    "quantity": lambda tag: _double(tag.quantile),
    "top_item": lambda tag: text_of(tag.top),
}
"""SKETCH_INPUTS and ITEMS (lane_kind)."""
