"""Sums up frames before their readings become rows.

Where a whole frame lies in one window of a query, one row stands for it. A reading that is a row of
its own becomes a row again for each query that takes it; the numbers of a frame are summed up once
for all queries. A frame that reaches into a second window becomes rows as usual, and so does one in
which a field is null in some readings. Which tags take sums: Tag.shape (tags.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.plan import frame_code
from edgewake.cloud.analysis.plan.clock_correction import corrected
from edgewake.cloud.analysis.plan.window_columns import start
from edgewake.cloud.queries.terms.windows import Window
from edgewake.protocol.frames.field_type import FieldType

HLL_LOG2_BUCKETS: Final = 14
"""2^14 buckets: standard error 0.81 %, at most 16 KiB; a small set is kept exactly in less."""
SUMS: Final = ("count", "sum", "least", "most")
"""The sums of each field of a frame: a bigint, then doubles, which are null where no reading has a
number."""

_READINGS: Final = "$readings"


class Shape(NamedTuple):
    """The sums of a frame that a tag takes."""

    window: Window
    fields: tuple[str, ...]
    """The fields that it counts, in its order."""
    item: tuple[str, FieldType] | None = None
    """The item whose distinct values it counts."""


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums that a lane makes of its frames."""

    shapes: tuple[Shape, ...]
    has_rows: bool
    """Does the lane need each reading as a row as well?"""

    @property
    def fields(self) -> tuple[str, ...]:
        """All fields that are summed up."""
        return tuple(dict.fromkeys(field for shape in self.shapes for field in shape.fields))

    @property
    def items(self) -> tuple[tuple[str, FieldType], ...]:
        """All fields whose different values are sketched."""
        return tuple(dict.fromkeys(shape.item for shape in self.shapes if shape.item is not None))

    @property
    def columns(self) -> list[str]:
        """The columns that `summed_up` adds to a frame."""
        values = [self._value(what, field) for field in self.fields for what in SUMS]
        return [
            _READINGS,
            *map(self._whole, self.shapes),
            *values,
            *(f"$items_{i}" for i in range(len(self.items))),
        ]

    @property
    def readings(self) -> Column:
        """The number of readings of a frame, bigint."""
        return F.col(_READINGS)

    @property
    def is_one_enough(self) -> Column:
        """Does one row stand for all of a frame?"""
        return F.lit(False) if self.has_rows else self.is_whole_for_all

    @property
    def is_whole_for_all(self) -> Column:
        """Do the sums of a frame stand for it in all shapes?"""
        return reduce(and_, map(self.is_whole, self.shapes))

    def is_whole(self, shape: Shape) -> Column:
        """Do the sums of a frame stand for all its readings?

        They do where all readings are in the same windows, and no field is null in only a part of
        them.
        """
        return F.col(self._whole(shape))

    def value(self, what: str, field: str) -> Column:
        """One of the SUMS of a frame's field."""
        return F.col(self._value(what, field))

    def sketch(self, item: tuple[str, FieldType]) -> Column:
        """Make a sketch, binary, of the different values of a frame's field."""
        return F.col(f"$items_{self.items.index(item)}")

    def _whole(self, shape: Shape) -> str:
        return f"$whole_{self.shapes.index(shape)}"

    def _value(self, what: str, field: str) -> str:
        return f"${what}_{self.fields.index(field)}"


def summed_up(frames: DataFrame, sums: Sums) -> DataFrame:
    """Frames with `sums.columns`. In: shift, received_at, t, fields."""
    made = {
        _figures(field): frame_code.sums(frames.sparkSession, F.col(f"fields.`{field}`"))
        for field in sums.fields
    }
    frames = frames.withColumns(made) if made else frames
    first, last = corrected(F.array_min("t")), corrected(F.array_max("t"))
    whole = [
        reduce(and_, map(_is_full, shape.fields), _is_one(shape.window, first, last))
        for shape in sums.shapes
    ]
    figures = [F.col(f"`{_figures(field)}`.{what}") for field in sums.fields for what in SUMS]
    sketches = [_sketch(frames.sparkSession, *item) for item in sums.items]
    columns = [F.size("t").cast("bigint"), *whole, *figures, *sketches]
    return frames.withColumns(dict(zip(sums.columns, columns, strict=True))).drop(*made)


def _sketch(session: SparkSession, field: str, kind: FieldType) -> Column:
    return frame_code.distinct_sketch(
        session, F.col(f"fields.`{field}`"), HLL_LOG2_BUCKETS, are_texts=kind is FieldType.STRING
    )


def _figures(field: str) -> str:
    return f"$figures {field}"


def _is_one(window: Window, first: Column, last: Column) -> Column:
    """Are all readings of a frame in one window?

    They were all received at the same time, and the window without an end holds all times.
    """
    return (
        F.lit(True)
        if window.is_all or window.time != "t"
        else start(window, first) == start(window, last)
    )


def _is_full(field: str) -> Column:
    """Has the field a number in all readings of a frame, or in none?"""
    return F.col(f"`{_figures(field)}`.is_full")
