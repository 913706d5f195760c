"""Which queries run: decided from registrations, catalogue and what failed before.

Pure; analysis/run.py acts on it.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from edgewake.cloud.queries.plan_cost import STREAM_PLAN_MAX, plan_cost
from edgewake.cloud.queries.query import Query, Registered
from edgewake.cloud.queries.query_file import QueryError, UnknownStream, parse, stream_of
from edgewake.protocol.frames.stream import Stream, StreamTable
from edgewake.protocol.ops.query import QueryState, Registration

BUILT_IN_DIR: Final = Path(__file__).parent / "built_in"
QUERIES_PER_STREAM_MAX: Final = 100
"""Queries that share a stream's readings; the youngest beyond it are refused."""


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """Where a registered query stands."""

    state: QueryState
    stream: str = ""
    detail: str = ""
    registered: Registered | None = None
    """Present where it is to run."""


Asked: TypeAlias = tuple[Registration, str | None, Mapping[str, Stream], bool, Collection[str]]
"""What a query's status depends on: see `status`."""


@dataclass
class Registry:
    """Registrations and catalogue as they stand, filled from Kafka."""

    registrations: dict[str, Registration] = field(default_factory=dict)
    names: StreamTable = field(default_factory=StreamTable)
    """The catalogue, with the names that queries claim."""
    changes: int = 0
    """Grows with each change."""
    found: dict[str, tuple[Asked, QueryStatus]] = field(default_factory=dict)
    """Where each query was found to stand, and for what: to read all files again for each change
    would take 20 ms each."""

    def on_query(self, name: str, value: bytes | None) -> None:
        """A record of `ew.queries`; ValueError where it cannot be read."""
        if value is None:
            self.registrations.pop(name, None)
        else:
            self.registrations[name] = Registration.model_validate_json(value)
        self.changes += 1

    def on_stream(self, name: str, value: bytes | None) -> None:
        """A record of `ew.streams`; ValueError where it cannot be read."""
        self.names.apply(name, value)
        self.changes += 1

    @property
    def streams(self) -> dict[str, Stream]:
        """The streams of the catalogue."""
        return self.names.streams()


def check_foreign(query: Query, topics: Collection[str]) -> None:
    """Raises QueryError where the query joins a foreign topic that is not allowed."""
    if query.join is not None and query.join.foreign and query.join.foreign not in topics:
        raise QueryError(
            f"header foreign: topic {query.join.foreign!r} is not among the `foreign_topics` of "
            "analysis.toml; add it there"
        )


def status(
    registration: Registration,
    why: str | None,
    streams: Mapping[str, Stream],
    is_isolated: bool = False,
    foreign: Collection[str] = (),
) -> QueryStatus:
    """The state of one query.

    `why` it was taken out of its lane, if it was; `is_isolated`: see Registered; `foreign`: see
    check_foreign.
    """
    try:
        stream = stream_of(registration.text)
        if registration.paused:
            return QueryStatus(QueryState.PAUSED, stream)
        if why is not None:
            return QueryStatus(QueryState.FAILED, stream, why)
        query = parse(registration.text, streams)
        check_foreign(query, foreign)
    except UnknownStream as error:
        return QueryStatus(QueryState.STARTING, stream, f"waits for stream {stream!r} ({error})")
    except QueryError as error:
        return QueryStatus(QueryState.REFUSED, "", str(error))
    if query.name != registration.name:
        return QueryStatus(
            QueryState.REFUSED,
            stream,
            f"registered as {registration.name!r}, but its header says {query.name!r}",
        )
    return QueryStatus(
        QueryState.RUNNING, stream, "", Registered(query, registration.registered_at, is_isolated)
    )


def statuses(
    registry: Registry,
    failed: Mapping[str, str],
    foreign: Collection[str] = (),
    isolated: Container[str] = (),
) -> dict[str, QueryStatus]:
    """The state of every query.

    `failed`: label → why it was taken out of its lane; `foreign`: see check_foreign.

    `isolated`: those (label) with lanes of their own.
    """
    streams, before = registry.streams, registry.found
    registry.found = {}
    for name, registration in registry.registrations.items():
        label = registration.label
        asked = (registration, failed.get(label), streams, label in isolated, foreign)
        known = before.get(name)
        registry.found[name] = (
            known if known is not None and known[0] == asked else (asked, status(*asked))
        )
    found = {name: one for name, (_, one) in registry.found.items()}
    for stream in {one.stream for one in found.values()}:
        running = {
            name: one.registered
            for name, one in found.items()
            if one.stream == stream and one.registered is not None
        }
        for name, detail in _too_many(running).items():
            found[name] = QueryStatus(QueryState.REFUSED, stream, detail)
    return found


def _too_many(running: Mapping[str, Registered]) -> dict[str, str]:
    """The queries of a stream beyond the limit, the youngest, with the reason for each."""
    refused: dict[str, str] = {}
    planned = 0
    for count, (name, registered) in enumerate(
        sorted(running.items(), key=lambda item: item[1].registered_at)
    ):
        stream, cost = registered.query.stream, plan_cost(registered.query)
        if count >= QUERIES_PER_STREAM_MAX:
            refused[name] = f"stream {stream!r} has {QUERIES_PER_STREAM_MAX} queries, no more"
        elif planned + cost > STREAM_PLAN_MAX:
            refused[name] = (
                f"the queries of stream {stream!r} would have a plan of {planned + cost} "
                "functions, names and constants, more than"
                f" {STREAM_PLAN_MAX}: this one has {cost}; remove or shorten queries (fewer "
                "columns, a longer slide), or pause some"
            )
        else:
            planned += cost
    return refused


def built_in() -> dict[str, str]:
    """Name → text of the queries that come with Edgewake."""
    return {path.stem: path.read_text("utf-8") for path in sorted(BUILT_IN_DIR.glob("*.sql"))}
