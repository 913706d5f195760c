"""Registers, pauses, resumes, replaces and removes queries, and shows their progress."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Final, Protocol

from pydantic import BaseModel

from edgewake.cloud.kafka import clients, metadata, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.ops.tables.retired_queries import RetiredQueries, is_dead
from edgewake.cloud.ops.tables.table_writer import TableWriter
from edgewake.cloud.ops.tables.tables import OpsTables
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import QueryError
from edgewake.protocol.frames.stream import NameKind, Stream, unit_in
from edgewake.protocol.names import is_reserved
from edgewake.protocol.ops.query import (
    Progress,
    QueryState,
    Registration,
    claim_of,
    units_of,
)

log = logging.getLogger("edgewake.ops")

QUERIES_MAX: Final = 200
"""The most registered queries; each has a topic and costs the analysis."""


class QueryView(BaseModel):
    """A query."""

    name: str
    state: QueryState
    """`starting` until the analysis has reported it."""
    detail: str = ""
    stream: str | None = None
    """The stream after FROM."""
    streams: list[str] = []
    """All streams that it reads, without joined tables; empty until it runs."""
    paused: bool = False
    registered_at: int | None = None
    batch: int | None = None
    watermark: int | None = None
    """Event time, ms, up to which every window is final."""
    lag: int | None = None
    """Kafka offsets of its streams that are not computed yet: records, and about one marker per
    transaction.
    """
    readings_per_s: float | None = None
    state_rows: int | None = None
    """Rows of Spark's state of open windows, for all queries of its lane together; null where it
    has none, does not count them (RocksDB), or has not reported yet."""
    state_bytes: int | None = None
    """Bytes of that state; null where it has none, or has not reported yet."""
    keys: list[str] = []
    """The columns that identify a row together with its window; empty until it runs."""
    units: dict[str, str] = {}
    """Column → unit, of the columns that have the values of fields with one; empty until it runs.
    What is counted or computed has none."""
    late: int = 0
    kept: float = 1.0
    """The share of readings that it computes now: less than 1 only where its header allows `shed`,
    and it lags."""
    shed: int = 0
    """Readings shed so far, counted once for each window that they belong to."""
    isolated: bool = False
    """Whether it was isolated in a lane of its own because others waited for it; `detail` says why.
    """
    stands: bool = False
    """Whether its event time is held back, so that no window becomes final; `detail` says by what.
    """
    updated_at: int | None = None
    topic: str
    events_path: str
    """The path of its results on an access server."""
    events_urls: list[str]
    """The URL of its results on each access server that this API's configuration names."""
    text: str | None = None
    """The .sql file; only where a single query is requested."""


class CheckedQuery(BaseModel):
    """The outcome of checking a query file."""

    name: str
    stream: str
    """The stream after FROM."""
    streams: list[str]
    """All streams that it reads, without joined tables."""
    columns: list[str]
    """Columns of its results, without `revision` and `final`."""
    units: dict[str, str]
    """Column → unit, of the columns that have the values of fields with one."""
    execution: str
    """`shared`: Spark computes it together with others; `dedicated`: the driver makes its rows."""
    why: str
    """The reason for this execution."""
    plan: list[str]
    """The steps of computing a reading."""
    cost: int
    """Functions, names and constants that Spark plans for it."""
    cost_max: int
    """The upper bound of `cost`; a query with more is refused."""
    rows: int
    """Rows that a reading becomes: windows × fields of an UNPIVOT × parts."""


def view(
    registration: Registration,
    progress: Progress | None,
    access_urls: Sequence[str],
    streams: Mapping[str, Stream],
    *,
    with_text: bool = False,
) -> QueryView:
    """Joins a registration with its progress, and its columns with the units of `streams`.

    Progress from before the registration belongs to an earlier query of the same name.
    """
    if progress is not None and progress.updated_at < registration.registered_at:
        progress = None
    path = f"/v1/streams/{registration.name}/events"
    facts: dict[str, object] = {
        "state": QueryState.PAUSED if registration.paused else QueryState.STARTING
    }
    if progress is not None:
        facts |= progress.model_dump(exclude={"query", "reached", "quarantined", "measures"}) | {
            "state": _state(registration, progress.state),
            "streams": list(progress.reached) or [progress.stream],
            "units": units_of(progress.measures, partial(unit_in, streams)),
        }
    return QueryView.model_validate(
        facts
        | {
            "name": registration.name,
            "paused": registration.paused,
            "registered_at": registration.registered_at,
            "topic": registration.topic,
            "events_path": path,
            "events_urls": [url.rstrip("/") + path for url in access_urls],
            "text": registration.text if with_text else None,
        }
    )


def _state(registration: Registration, reported: QueryState) -> QueryState:
    """Returns the requested state of a query.

    The analysis reports a pause only after its batch, and a resumed query as paused until then.
    """
    if registration.paused and reported in (
        QueryState.RUNNING,
        QueryState.STARTING,
        QueryState.RETRYING,
    ):
        return QueryState.PAUSED
    return (
        QueryState.STARTING
        if reported is QueryState.PAUSED and not registration.paused
        else reported
    )


class Checked(Protocol):
    """What checking a query file yields."""

    @property
    def name(self) -> str: ...
    @property
    def stream(self) -> str: ...
    @property
    def streams(self) -> tuple[str, ...]: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def measures(self) -> Mapping[str, tuple[str, ...]]: ...
    @property
    def execution(self) -> str: ...
    @property
    def why(self) -> str: ...
    @property
    def plan(self) -> tuple[str, ...]: ...
    @property
    def cost(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def cost_max(self) -> int: ...


class NotThereYet(QueryError):
    """A query file lacks only a stream: it can be registered and runs once the stream exists."""

    def __init__(self, found: Checked, error: QueryError) -> None:
        """`found` is the outcome under the assumption that all unknown names exist."""
        super().__init__(*error.faults)
        self.found = found


Check = Callable[[str, Mapping[str, Stream]], Checked]
"""Checks a query file against the catalogue; raises QueryError, or NotThereYet."""


class QueryService:
    """Writes registrations to `ew.queries`.

    A query owns its name once its claim is the first on `ew.streams`. So no stream has that name,
    and if two processes register one name at once, only one succeeds.
    """

    def __init__(
        self,
        config: KafkaConfig,
        writer: TableWriter,
        tables: OpsTables,
        *,
        clock: Clock,
        new_id: Callable[[], str],
        check: Check,
        access_urls: Sequence[str],
    ) -> None:
        """`new_id` makes unique ids."""
        self._new_id = new_id
        self._config = config
        self._writer = writer
        self._tables = tables
        self._clock = clock
        self._check = check
        self._access_urls = access_urls
        self._admin = clients.admin(config)
        self._retired = RetiredQueries()
        self._turn = asyncio.Lock()

    def check(self, text: str) -> CheckedQuery:
        """Checks a query file. Raises Problem with all its errors."""
        try:
            return self._described(self._check(text, self._tables.streams))
        except QueryError as error:
            raise _refused(error) from error

    def _registrable(self, text: str) -> CheckedQuery:
        """Checks a query whose stream may be missing: the analysis waits for it."""
        try:
            return self._described(self._check(text, self._tables.streams))
        except NotThereYet as error:
            return self._described(error.found)
        except QueryError as error:
            raise _refused(error) from error

    def explain(self, name: str) -> CheckedQuery:
        """What a registered query says. Raises Problem(404 | 422)."""
        return self._registrable(self.get(name).text)

    async def add(self, text: str) -> tuple[QueryView, bool]:
        """Registers a query file. Returns its view, and whether it is new.

        Registering an identical text again is allowed. Raises Problem or Unavailable.
        """
        async with self._turn:
            name = self._registrable(text).name
            existing = self._tables.queries.get(name)
            if existing is not None and existing.text == text:
                return self.view(existing, with_text=True), False
            if existing is not None:
                raise Problem(
                    409,
                    "name_taken",
                    f"query {name!r} is registered with another text; remove it first, or use "
                    "another name",
                )
            if len(self._tables.queries) >= QUERIES_MAX:
                raise Problem(
                    409,
                    "too_many_queries",
                    f"{QUERIES_MAX} queries are registered, the most at once; remove one first",
                )
            now_ms = self._clock.now_ms()
            registration = Registration(
                name=name, text=text, registered_at=now_ms, claim=claim_of(now_ms, self._new_id())
            )
            await self._claim(registration)
            await self._writer.blocking(
                lambda: topic_admin.ensure_topics(
                    self._config, [topics.QUERIES, registration.topic], client=self._admin
                )
            )
            await self._writer.write(topics.QUERIES, name, registration)
            return self.view(registration, with_text=True), True

    async def replace(self, name: str, text: str) -> tuple[QueryView, bool]:
        """Replaces a query's text. Returns its view, and whether the text differed.

        The new query has its own topic and state and starts like a new registration; results of the
        old one stay readable for an hour. Raises Problem or Unavailable.
        """
        async with self._turn:
            existing = self.get(name)
            if (found := self._registrable(text).name) != name:
                raise Problem(
                    422,
                    "query_refused",
                    f"the query file's name is {found!r}, not {name!r}; a new name needs a new "
                    "registration",
                )
            if existing.text == text:
                return self.view(existing, with_text=True), False
            now_ms = max(self._clock.now_ms(), existing.registered_at + 1)
            registration = existing.model_copy(update={"text": text, "registered_at": now_ms})
            await self._writer.blocking(
                lambda: topic_admin.ensure_topics(
                    self._config, [registration.topic], client=self._admin
                )
            )
            await self._writer.write(topics.QUERIES, name, registration)
            return self.view(registration, with_text=True), True

    async def _claim(self, registration: Registration) -> None:
        """Claims the name, or raises Problem(409)."""
        name, now_ms = registration.name, self._clock.now_ms()
        row = self._tables.names.get(name)
        if is_reserved(name):
            raise Problem(
                409,
                "name_taken",
                f"{name!r} is reserved for the system; a query needs a name of its own",
            )
        if row is not None and row.kind is NameKind.STREAM:
            raise Problem(
                409, "name_taken", f"{name!r} is a stream; a query needs a name of its own"
            )
        if row is not None and not is_dead(row, self._tables.queries, now_ms):
            raise Problem(
                409,
                "name_taken",
                f"a query {name!r} is being registered by somebody else; look again in some "
                "seconds",
            )
        revision = 0 if row is None else row.revision + 1
        await self._writer.write(
            topics.STREAMS,
            name,
            Stream(name=name, kind=NameKind.QUERY, claim=registration.claim, revision=revision),
        )
        row = self._tables.names.get(name)
        if row is None or row.claim != registration.claim:
            raise Problem(
                409,
                "name_taken",
                f"{name!r} was taken by somebody else at the same time; use another name",
            )

    async def set_paused(self, name: str, paused: bool) -> QueryView:
        """Pauses or resumes a query. Raises Problem(404) or Unavailable."""
        async with self._turn:
            registration = self.get(name)
            if registration.paused != paused:
                registration = registration.model_copy(update={"paused": paused})
                await self._writer.write(topics.QUERIES, name, registration)
            return self.view(registration, with_text=True)

    async def remove(self, name: str) -> None:
        """Removes a query; its results stay readable for an hour.

        Raises Problem(404) or Unavailable.
        """
        async with self._turn:
            self.get(name)
            await self._writer.write(topics.QUERIES, name, None)
            await self._release(name)

    async def _release(self, name: str) -> None:
        row = self._tables.names.get(name)
        if row is not None and row.kind is NameKind.QUERY:
            await self._writer.write(topics.STREAMS, name, None)

    async def clean_up(self) -> None:
        """Deletes topics of queries removed long ago, and releases unused claims of names.

        Raises Unavailable.
        """
        async with self._turn:
            names = await self._writer.blocking(lambda: metadata.partition_counts(self._admin))
            gone = self._retired.deletable(names, self._tables.queries, self._clock.monotonic_s())
            if gone:
                await self._writer.blocking(lambda: topic_admin.delete_topics(self._admin, gone))
                log.info(
                    "deleted the results of %d removed queries",
                    len(gone),
                    extra={"event": "queries.deleted", "topics": gone},
                )
            for row in list(self._tables.names.values()):
                if is_dead(row, self._tables.queries, self._clock.now_ms()):
                    await self._release(row.name)

    def streams_of(self, registration: Registration) -> Sequence[str]:
        """Returns the streams that a query reads; empty where its text is no longer valid."""
        try:
            return self._check(registration.text, self._tables.streams).streams
        except NotThereYet as error:
            return error.found.streams
        except QueryError:
            return ()

    def get(self, name: str) -> Registration:
        """Returns a registration. Raises Problem(404)."""
        found = self._tables.queries.get(name)
        if found is None:
            raise Problem(404, "no_such_query", f"no query {name[:80]!r} is registered")
        return found

    def view(self, registration: Registration, *, with_text: bool = False) -> QueryView:
        """Returns the current view of a query."""
        return view(
            registration,
            self._tables.progress.get(registration.name),
            self._access_urls,
            self._tables.streams,
            with_text=with_text,
        )

    def _described(self, found: Checked) -> CheckedQuery:
        return CheckedQuery(
            name=found.name,
            stream=found.stream,
            streams=list(found.streams),
            columns=list(found.columns),
            units=units_of(found.measures, partial(unit_in, self._tables.streams)),
            execution=found.execution,
            why=found.why,
            plan=list(found.plan),
            cost=found.cost,
            rows=found.rows,
            cost_max=found.cost_max,
        )


def _refused(error: QueryError) -> Problem:
    faults = [asdict(fault) for fault in error.faults]
    return Problem(422, "query_refused", str(error), line=error.faults[0].line, faults=faults)
