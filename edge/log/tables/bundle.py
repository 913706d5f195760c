"""Readings with the same fields, in columns, as a source with many readings passes them on.

Values, no I/O.

A reading on its own costs a tuple, a dictionary and a turn in every loop on its way to the disk; in
a bundle it costs its values. What is in a bundle was checked (`edgewake.edge.intake.columnwise`)
and has one type per column, so that a batch is made of it with one call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias, TypeVar, overload

import orjson

from edgewake.edge.log.tables.codec import Batch, Reading, batches, cut
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.frame import Scalar

R = TypeVar("R", bound=Iterable[Reading])
Types: TypeAlias = Sequence[FieldType | None]


@dataclass(frozen=True, slots=True, eq=False)
class Bundle(Sequence[Reading]):
    """At least one reading."""

    t: Sequence[int]
    names: tuple[str, ...]
    columns: Sequence[Sequence[Scalar]]
    """By name, each as long as `t`."""
    types: Types
    """By name; None where all values are null."""
    size: int
    """Bytes of memory, about."""

    def __len__(self) -> int:
        return len(self.t)

    @overload
    def __getitem__(self, index: int) -> Reading: ...
    @overload
    def __getitem__(self, index: slice) -> Bundle: ...
    def __getitem__(self, index: int | slice) -> Reading | Bundle:
        if isinstance(index, slice):
            t = self.t[index]
            size = self.size * len(t) // len(self.t)
            return Bundle(
                t, self.names, [column[index] for column in self.columns], self.types, size
            )
        return self.t[index], dict(
            zip(self.names, (column[index] for column in self.columns), strict=True)
        )

    def __iter__(self) -> Iterator[Reading]:
        for t, *row in zip(self.t, *self.columns, strict=True):
            yield t, dict(zip(self.names, row, strict=True))

    def body(self) -> bytes:
        """The body of the batch that holds all of it."""
        return orjson.dumps(
            {"t": self.t, "fields": dict(zip(self.names, self.columns, strict=True))}
        )


class Pile(Sequence[Reading]):
    """Readings in the order in which they came: some one by one, some in bundles."""

    def __init__(self, parts: Sequence[Sequence[Reading]]) -> None:
        self.parts = parts
        self._count = sum(map(len, parts))

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Reading: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Reading]: ...
    def __getitem__(self, index: int | slice) -> Reading | Sequence[Reading]:
        return list(self)[index]

    def __iter__(self) -> Iterator[Reading]:
        return chain.from_iterable(self.parts)


def parts_of(readings: R) -> Sequence[Sequence[Reading] | R]:
    """What readings were put together of, in order: bundles and others."""
    # Most are lists, and `isinstance` of a class of collections.abc takes ten times as long
    if type(readings) is not list and isinstance(readings, Pile):
        return readings.parts
    return (readings,)


def last_of(readings: Sequence[Reading]) -> Reading:
    """The last of at least one, however they were put together."""
    return parts_of(readings)[-1][-1]


def batches_of(
    readings: Sequence[Reading], *, readings_max: int, bytes_max: int
) -> Iterator[Batch]:
    """Cut readings into batches, in order; bundles that follow each other and fit go together."""
    for run in _runs(parts_of(readings)):
        if not isinstance(run, Bundle):
            yield from batches(run, readings_max=readings_max, bytes_max=bytes_max)
            continue
        for at in range(0, len(run), readings_max):
            part = run[at : at + readings_max]
            yield from cut(Batch(len(part), part.body()), bytes_max=bytes_max)


def _runs(parts: Sequence[Sequence[Reading]]) -> Iterator[Sequence[Reading]]:
    run: list[Bundle] = []
    types: Types = ()
    for part in parts:
        together = (
            _together(types, part.types)
            if run and isinstance(part, Bundle) and part.names == run[0].names
            else None
        )
        if run and together is None:
            yield _joined(run, types)
            run = []
        if isinstance(part, Bundle):
            run.append(part)
            types = together or part.types
        else:
            yield part
    if run:
        yield _joined(run, types)


def _together(types: Types, more: Types) -> Types | None:
    """The types of columns that are put one behind the other; None where one would mix two."""
    if any(
        one is not another
        for one, another in zip(types, more, strict=True)
        if one is not None and another is not None
    ):
        return None
    return [one or another for one, another in zip(types, more, strict=True)]


def _joined(bundles: Sequence[Bundle], types: Types) -> Bundle:
    if len(bundles) == 1:
        return bundles[0]
    columns = [
        list(chain.from_iterable(parts))
        for parts in zip(*(bundle.columns for bundle in bundles), strict=True)
    ]
    t = list(chain.from_iterable(bundle.t for bundle in bundles))
    return Bundle(t, bundles[0].names, columns, types, sum(bundle.size for bundle in bundles))
