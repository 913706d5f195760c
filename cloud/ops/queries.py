"""Queries: what is registered joined with how far it has come, and registering, pausing, resuming and removing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Message
from pydantic import BaseModel

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.ops.tables import OpsTables
from edgewake.cloud.web import Problem
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import QueryError, Unavailable
from edgewake.protocol.query import Progress, QueryState, Registration
from edgewake.protocol.stream import Stream

QUERIES_MAX: Final = 200
"""Registered queries; each has a topic and costs the analysis."""
TEXT_CHARS_MAX: Final = 65_536
WRITE_TIMEOUT_S: Final = 10.0
APPLIED_TIMEOUT_S: Final = 5.0
"""How long a writer waits to read his own write from the table."""


class QueryView(BaseModel):
    """A query."""

    name: str
    state: QueryState
    """starting until the analysis has said something about it."""
    detail: str = ""
    stream: str | None = None
    execution: str | None = None
    paused: bool = False
    registered_at: int | None = None
    batch: int | None = None
    watermark: int | None = None
    """Event time in ms up to which every window is final."""
    lag: int | None = None
    """Records of the stream not yet computed."""
    readings_per_s: float | None = None
    late: int = 0
    updated_at: int | None = None
    topic: str
    events_path: str
    """Of its results on an access server."""
    events_urls: list[str]
    """The same with each access server that this API's configuration names."""
    text: str | None = None
    """The .sql file; only where one query is asked for."""


def view(registration: Registration, progress: Progress | None, access_urls: Sequence[str], *, with_text: bool = False) -> QueryView:
    """The joined view. Progress from before the registration is an earlier query's of the same name."""
    if progress is not None and progress.updated_at < registration.registered_at:
        progress = None
    path = f"/v1/streams/{registration.name}/events"
    facts: dict[str, object] = {"state": QueryState.PAUSED if registration.paused else QueryState.STARTING}
    if progress is not None:
        facts |= progress.model_dump(exclude={"query", "offsets"})
    return QueryView.model_validate(
        facts
        | {
            "name": registration.name,
            "paused": registration.paused,
            "registered_at": registration.registered_at,
            "topic": topics.query_topic(registration.name),
            "events_path": path,
            "events_urls": [url.rstrip("/") + path for url in access_urls],
            "text": registration.text if with_text else None,
        }
    )


class Checked(Protocol):
    """What a check finds in a query file."""

    @property
    def name(self) -> str: ...


Check = Callable[[str, Mapping[str, Stream]], Checked]
"""Reads a query file against the catalogue; raises QueryError."""


class Registry:
    """Writes to `ew.queries`. One change at a time, so that two people cannot take the same name."""

    def __init__(self, config: KafkaConfig, tables: OpsTables, clock: Clock, check: Check, access_urls: Sequence[str]) -> None:
        self._config = config
        self._tables = tables
        self._clock = clock
        self._check = check
        self._access_urls = access_urls
        self._producer = clients.producer(config, "ops-queries", **{"message.timeout.ms": round(WRITE_TIMEOUT_S * 1000)})
        self._thread = ThreadPoolExecutor(1, "ops-registry")
        self._turn = asyncio.Lock()

    async def add(self, text: str) -> tuple[QueryView, bool]:
        """Register a query file; (view, was it new?). The same text again is no error. Raises Problem or Unavailable."""
        async with self._turn:
            try:
                name = self._check(text, self._tables.streams).name
            except QueryError as error:
                raise Problem(422, "query_refused", str(error), line=_line(str(error))) from error
            if name in self._tables.streams:
                raise Problem(409, "name_taken", f"{name!r} is a stream; a query needs a name of its own")
            existing = self._tables.queries.get(name)
            if existing is not None and existing.text == text:
                return self.view(existing, with_text=True), False
            if existing is not None:
                raise Problem(409, "name_taken", f"query {name!r} is registered with another text; remove it first, or use another name")
            if len(self._tables.queries) >= QUERIES_MAX:
                raise Problem(409, "too_many_queries", f"{QUERIES_MAX} queries are registered, no more; remove one first")
            registration = Registration(name=name, text=text, registered_at=self._clock.now_ms())
            await self._blocking(lambda: topic_admin.ensure_topics(self._config, [topics.QUERIES, topics.query_topic(name)]))
            await self._write(name, registration)
            return self.view(registration, with_text=True), True

    async def set_paused(self, name: str, paused: bool) -> QueryView:
        """Pause or resume. Raises Problem(404) or Unavailable."""
        async with self._turn:
            registration = self.get(name)
            if registration.paused != paused:
                registration = registration.model_copy(update={"paused": paused})
                await self._write(name, registration)
            return self.view(registration, with_text=True)

    async def remove(self, name: str) -> None:
        """Remove it; its results stay until they are too old. Raises Problem(404) or Unavailable."""
        async with self._turn:
            self.get(name)
            await self._write(name, None)

    def get(self, name: str) -> Registration:
        """A registration. Raises Problem(404)."""
        found = self._tables.queries.get(name)
        if found is None:
            raise Problem(404, "no_such_query", f"no query {name[:80]!r} is registered")
        return found

    def view(self, registration: Registration, *, with_text: bool = False) -> QueryView:
        """The query as it stands."""
        return view(registration, self._tables.progress.get(registration.name), self._access_urls, with_text=with_text)

    async def _write(self, name: str, registration: Registration | None) -> None:
        value = None if registration is None else registration.model_dump_json().encode()
        await self._blocking(lambda: self._produce(name, value))
        deadline = self._clock.monotonic_s() + APPLIED_TIMEOUT_S
        while self._tables.queries.get(name) != registration and self._clock.monotonic_s() < deadline:
            await self._clock.sleep(0.02)

    def _produce(self, name: str, value: bytes | None) -> None:
        failed: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        try:
            self._producer.produce(topics.QUERIES, key=name, value=value, partition=0, on_delivery=on_delivery)
            left = self._producer.flush(WRITE_TIMEOUT_S + 1)
        except (KafkaException, BufferError) as error:
            raise Unavailable(f"query {name}: {error}") from error
        if failed or left:
            raise Unavailable(f"query {name}: {failed[0].str() if failed else 'Kafka did not confirm it in time'}")

    def _blocking(self, work: Callable[[], None]) -> Awaitable[None]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Leave."""
        self._producer.flush(1)
        self._thread.shutdown()


_LINE: Final = re.compile(r"\bline (\d+)", re.IGNORECASE)


def _line(detail: str) -> int | None:
    found = _LINE.search(detail)
    return None if found is None else int(found.group(1))
