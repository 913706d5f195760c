"""The kinds of queries: which query is of which kind, and why it is computed as it is. Pure.

Queries of the same streams and kind share a lane, which is one Spark query.

shared     Spark computes it, in one Spark query with all others of its streams and kind: a reading
           is read and decoded once for all
dedicated  what depends on the readings before, or on another table or stream: the driver makes its
           rows, one reading after the other

How a kind is computed is said in analysis/jobs/kinds.py.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final, Self, TypeAlias

from edgewake.cloud.queries.query import Query

SHARED: Final = "shared"
DEDICATED: Final = "dedicated"
Rule: TypeAlias = Callable[[Query], bool]

APART: Final = "~"
"""Comes before the query (label) in the place of a lane that one query has for itself."""


SKETCH_INPUTS: Final = ("measure", "extreme", "item", "quantity", "top_item")
"""What a tag may have for moments, extremes and the three sketches: double, struct<at: double,
number: double, text: string>, bigint, double, string."""


ITEMS: Final = "items"
"""What a tag has in lanes of kind DISTINCT for all items of a frame at once: a sketch of them
(binary)."""
_SUMS: Final = (
    "counts, sums, minima and maxima merge, so Spark computes it with all such queries of its "
    "streams at once"
)
_SKETCHES: Final = (
    "its aggregates merge, so Spark computes it at once with all queries of its streams that "
    "need sketches too"
)
_SHEDS: Final = "; it may leave readings out, so it is computed separately from those that may not"


class LaneKind(StrEnum):
    """A kind of lane: its name, which queries fit, their class, why, and what its tags have.

    A query is of the first kind that it fits. Queries without sketches must not pay for sketches,
    and those that may not leave readings out neither wait for others nor pay for their weights.
    Names are written into records and folders of lanes, so they stay where a word changes here.
    """

    fits: Rule
    execution: str
    """shared or dedicated."""
    why: str
    """Completes "it is shared: …", for people."""
    inputs: tuple[str, ...]
    """What its tags have beside numbers."""

    def __new__(
        cls, name: str, fits: Rule, execution: str, why: str, inputs: tuple[str, ...] = ()
    ) -> Self:
        kind = str.__new__(cls, name)
        kind._value_ = name
        kind.fits, kind.execution, kind.why, kind.inputs = fits, execution, why, inputs
        return kind

    STREAM_JOIN = (
        "pair",
        lambda query: query.is_paired,
        DEDICATED,
        "readings of two streams find one another, so the driver pairs them one after the other",
    )
    TABLE = (
        "table",
        lambda query: query.is_table,
        DEDICATED,
        "of tables only the latest rows count, so the driver keeps them and emits what changes",
    )
    CHANGE = (
        "change",
        lambda query: bool(query.on_change),
        DEDICATED,
        "a reading counts only where it differs from the one before, so the driver compares one "
        "after the other",
    )
    TABLE_JOIN = (
        "join",
        lambda query: query.is_completed,
        DEDICATED,
        "a reading needs a table's row, or those before it, so the driver completes one after the "
        "other",
    )
    ROWS = (
        "rows",
        lambda query: query.is_rows,
        SHARED,
        "each reading is a row, so Spark computes it with all such queries of its streams at "
        "once, without state",
    )
    SEQUENCE = (
        "sequence",
        lambda query: query.window.is_sequence,
        DEDICATED,
        "readings decide where its windows begin and end, so the driver folds them one after the "
        "other",
    )
    SKETCH_SHED = (
        "sketch-shed",
        lambda query: query.shed is not None and query.has_sketches,
        SHARED,
        _SKETCHES + _SHEDS,
        SKETCH_INPUTS,
    )
    PLAIN_SHED = ("plain-shed", lambda query: query.shed is not None, SHARED, _SUMS + _SHEDS)
    DISTINCT = (
        "distinct",
        lambda query: bool(query.keys) and query.only_counts_distinct,
        SHARED,
        "counts of different values merge, so Spark computes it at once with all queries that ask "
        "for nothing else",
        ("item", ITEMS),
    )
    """For queries with groups that only count different values: sketches for every group would be
    kept in vain."""
    SKETCH = ("sketch", lambda query: query.has_sketches, SHARED, _SKETCHES, SKETCH_INPUTS)
    PLAIN = ("plain", lambda _: True, SHARED, _SUMS)

    @property
    def sheds(self) -> bool:
        """May its queries leave readings out?"""
        return self in (LaneKind.PLAIN_SHED, LaneKind.SKETCH_SHED)


def kind_of(query: Query) -> LaneKind:
    """The kind of the lane that computes it."""
    return next(kind for kind in LaneKind if kind.fits(query))


KIND_NAMED: Final = {str(kind): kind for kind in LaneKind}
"""Name → kind, for names that come from lanes' records."""
