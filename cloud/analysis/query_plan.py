"""A query as frozen values: what remains of a query file when everything in it was checked. Nothing here reads or runs anything."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from edgewake.cloud.analysis.expressions import Expression, Kind, fields_of
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
    """FROM stream UNPIVOT (value FOR metric IN (fields)): one row for each field that is not null."""

    value: str
    metric: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A column of the result. `slot` counts within the list that its function reads: numbers, distinct, quantiles or tops."""

    name: str
    function: str
    """count_all, count, sum, avg, min, max, distinct, quantile or top_k."""
    slot: int = 0
    parameter: float = 0.0
    """The quantile's rank, or k."""
    kind: Kind = None
    """Type of a top_k's items."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A checked query. Its aggregates are slots of mergeable partials: equal expressions share one."""

    name: str
    description: str
    lateness_ms: int
    stream: str
    size_ms: int
    slide_ms: int
    reopen_ms: int = 0
    unpivot: Unpivot | None = None
    where: Expression | None = None
    keys: tuple[Key, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    numbers: tuple[Expression, ...] = ()
    distinct: tuple[tuple[Expression, Kind], ...] = ()
    quantiles: tuple[Expression, ...] = ()
    tops: tuple[tuple[Expression, Kind], ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that its results have of their own."""
        return ("window_start", "window_end", *(key.name for key in self.keys), *(aggregate.name for aggregate in self.aggregates))

    @property
    def kept_ms(self) -> int:
        """How long after its end a window takes readings, and its state is kept."""
        return self.lateness_ms + self.reopen_ms

    @property
    def has_sketches(self) -> bool:
        """Does it need HLL, KLL or frequent items?"""
        return bool(self.distinct or self.quantiles or self.tops)

    @property
    def parts(self) -> int:
        """Rows of partials that one (window, key) needs: each has NUMBERS_PER_TAG numbers and one sketch of a kind."""
        return max(1, -(-len(self.numbers) // NUMBERS_PER_TAG), len(self.distinct), len(self.quantiles), len(self.tops))

    @property
    def fields(self) -> frozenset[str]:
        """The stream's fields that it reads."""
        used = {name for expression in self._expressions() for name in fields_of(expression)}
        if self.unpivot is not None:
            used = used - {self.unpivot.value, self.unpivot.metric} | set(self.unpivot.fields)
        return frozenset(used - {"device"})

    def _expressions(self) -> list[Expression]:
        where = [] if self.where is None else [self.where]
        texts = [expression for expression, _ in (*self.distinct, *self.tops)]
        return [*where, *(key.expression for key in self.keys), *self.numbers, *self.quantiles, *texts]


@dataclass(frozen=True, slots=True)
class Registered:
    """A query with its identity: registered anew under the same name it is another one, and its old state is not its own."""

    query: Query
    registered_at: int

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
