"""Tags that take sums of frames, as lines of a table that readings are joined with.

What distinguishes tags is data, not code.

As an expression of its own each tag makes the code longer that Spark compiles for the lane; of
fifty queries it was more than Java takes as one method, and was not compiled at all. A table of any
length is the same code: what several tags need, as bounds of windows and figures of fields, is made
once for a reading, and each line says which of them are its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.plan.decode import IN_FRAME
from edgewake.cloud.analysis.plan.frame_sums import SUMS, Shape, Sums
from edgewake.cloud.analysis.plan.window_columns import bounds
from edgewake.cloud.queries.query import NUMBERS_PER_TAG

_STARTS, _ENDS, _KEYS, _WHOLE = "$starts", "$ends", "$keys", "$wholes"
_FIELDS: Final = tuple(f"$field_{i}" for i in range(NUMBERS_PER_TAG))
_LINE: Final = {"$query": "bigint", "$kept_ms": "bigint", "$back_ms": "bigint"} | dict.fromkeys(
    ("$part", "$window", "$key", "$shape", *_FIELDS), "int"
)
"""Columns of the table; those that are `int`, but for the part, are places in an array of the
reading."""


@dataclass(frozen=True, slots=True)
class Line:
    """A tag in the table."""

    query: int
    part: int
    shape: Shape
    key: str
    """Column of the reading."""
    kept_ms: int
    back_ms: int
    """How long before the reading's latest window this one begins."""


def joined(
    readings: DataFrame,
    lines: Sequence[Line],
    sums: Sums,
    *,
    nothing: Mapping[str, Column],
    tag: str | None = None,
    forgotten: str | None,
) -> tuple[DataFrame, Mapping[str, Column]]:
    """A row for each line of each reading that it takes.

    The columns: expires_ms, the rest of TAG_COLUMNS, readings, what SUMS says of each slot, and
    `nothing`, columns that lines have no value for. `tag`: a column of the readings that is null,
    or a struct of these columns, which is a row as it is. `forgotten`: see tags.tagged.
    """
    windows = list(dict.fromkeys(line.shape.window for line in lines))
    keys = list(dict.fromkeys(line.key for line in lines))
    starts, ends = zip(*[bounds(window, 0) for window in windows], strict=True)
    made = {
        _STARTS: F.array(*starts),
        _ENDS: F.array(*ends),
        _KEYS: F.array(*map(F.col, keys)),
        _WHOLE: F.array(*map(sums.is_whole, sums.shapes)),
        **_figures(sums),
    }
    table = _literal(
        [
            _line(line, windows.index(line.shape.window), keys.index(line.key), sums)
            for line in lines
        ]
    )
    if tag is not None:
        table = F.when(F.col(tag).isNull(), table).otherwise(_literal([{}]))
    each = readings.select("*", *[column.alias(name) for name, column in made.items()]).select(
        "*", F.inline(table)
    )
    columns = _columns(sums) | dict(nothing)
    is_there = ~_of(_WHOLE, "$shape") | (F.col(IN_FRAME) == 0)
    if forgotten is not None:
        is_there &= columns["expires_ms"] > F.col(forgotten)
    if tag is None:
        return each.where(is_there), columns
    is_row = F.col(tag).isNotNull()
    return each.where(is_row | is_there), {
        name: F.when(is_row, F.col(tag)[name]).otherwise(column) for name, column in columns.items()
    }


def _figures(sums: Sums) -> dict[str, Column]:
    """Give each field the reading's own number, and what is made of the frame's."""
    made = {"$x": F.array(*[F.col(field).cast("double") for field in sums.fields])}
    return (
        made
        | {
            _name(what): F.array(*[sums.value(what, field) for field in sums.fields])
            for what in SUMS
        }
        if sums.fields
        else {}
    )


def _line(line: Line, window: int, key: int, sums: Sums) -> dict[str, int]:
    fields = {
        name: sums.fields.index(field)
        for name, field in zip(_FIELDS, line.shape.fields, strict=False)
    }
    places = {"$window": window, "$key": key, "$shape": sums.shapes.index(line.shape)}
    return (
        {
            "$query": line.query,
            "$part": line.part,
            "$kept_ms": line.kept_ms,
            "$back_ms": line.back_ms,
        }
        | places
        | fields
    )


def _literal(table: Sequence[Mapping[str, int]]) -> Column:
    # Spark makes it once, when it plans. As a JSON text it is one call of the JVM, and not one for
    # each number.
    schema = ",".join(f"`{name}`:{kind}" for name, kind in _LINE.items())
    return F.from_json(F.lit(orjson.dumps(table).decode()), f"array<struct<{schema}>>")


def _columns(sums: Sums) -> dict[str, Column]:
    end = _of(_ENDS, "$window") - F.col("$back_ms")
    is_whole = _of(_WHOLE, "$shape")
    columns = {
        "expires_ms": end + F.col("$kept_ms"),
        "query": F.col("$query"),
        "part": F.col("$part"),
        "window_start": _of(_STARTS, "$window") - F.col("$back_ms"),
        "window_end": end,
        "key": _of(_KEYS, "$key"),
        "readings": F.when(is_whole, sums.readings).otherwise(F.lit(1).cast("bigint")),
    }
    for i, field in enumerate(_FIELDS):
        x = _of("$x", field) if sums.fields else F.lit(None).cast("double")
        of_one = dict.fromkeys(SUMS, x) | {
            "count": F.when(x.isNotNull(), 1).otherwise(0).cast("bigint")
        }
        for what, value in of_one.items():
            of_all = (
                F.when(is_whole, _of(_name(what), field)).otherwise(value) if sums.fields else value
            )
            columns[f"{what}_{i}"] = (
                F.coalesce(of_all, F.lit(0).cast("bigint")) if what == "count" else of_all
            )
    return columns


def _name(what: str) -> str:
    return f"${what}s"


def _of(array: str, place: str) -> Column:
    """An element of an array; null where its position is null."""
    return F.get(F.col(array), F.col(place))
