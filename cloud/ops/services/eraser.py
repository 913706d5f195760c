"""Accepts erasures and carries them out one by one, on one operations server at a time.

Every step is written to `ew.erasures` before the next begins, and repeating a step changes nothing.
So if a server dies, another one continues TAKEOVER_MS later and repeats at most one step.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from confluent_kafka import KafkaException

from edgewake.cloud.failpoint import reach
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.ops.services.erasing import KafkaEraser
from edgewake.cloud.ops.services.queries import QueryService
from edgewake.cloud.ops.tables.table_writer import TableWriter
from edgewake.cloud.ops.tables.tables import OpsTables
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import LocalError, Unavailable
from edgewake.protocol.names import is_reserved
from edgewake.protocol.ops.erasure import (
    OPEN_MAX,
    ROWS_MAX,
    STEPS,
    Erasure,
    Report,
    Step,
    report_key,
)
from edgewake.protocol.ops.query import QueryState

log = logging.getLogger("edgewake.ops")

LOOK_S: Final = 0.5
"""Seconds between checks for work."""
ALIVE_S: Final = 5.0
"""Seconds between two signs of life of the working server."""
TAKEOVER_MS: Final = 20_000
"""Time without a sign of life, in ms, after which another server continues."""
T = TypeVar("T")

LEFT: Final[Mapping[str, tuple[str, ...]]] = {
    "stream": (
        "boards, alert rules and leases that name the stream: they stay and show nothing",
        "Kafka removes the bytes of summaries when it compacts their topics, within hours",
    ),
    "device": (
        "summaries over all devices, or over a set that the analysis declares, and results of "
        "queries: what it contributed is in their figures, and texts that it sent may be among "
        "their most frequent values and samples; remove or rebuild a query, or erase the whole "
        "stream",
        "the bytes of what was cut, in the files that Kafka still writes to: it deletes a file "
        "once another one is begun and nothing in it is kept",
        "the device's own log, and what clients have read",
        "the last values that access servers hold in memory, until nobody asks for five minutes",
    ),
}


class EraserDesk:
    """Accepts erasures and, in its task `run`, carries them out."""

    def __init__(
        self,
        config: KafkaConfig,
        writer: TableWriter,
        tables: OpsTables,
        registry: QueryService,
        clock: Clock,
        *,
        new_id: Callable[[], str],
        settle_s: float,
        has_lake: Callable[[], bool],
    ) -> None:
        """`new_id` makes unique ids; `has_lake` says whether a lake is written."""
        self._config, self._writer, self._tables = config, writer, tables
        self._registry, self._clock, self._new_id = registry, clock, new_id
        self._settle_ms, self._has_lake = round(settle_s * 1000), has_lake
        self._own = new_id()
        self._turn = asyncio.Lock()
        self._is_stopping = False
        self._thread = ThreadPoolExecutor(1, "ops-erasures")
        self._kafka: KafkaEraser | None = None

    # --- asking

    async def ask_stream(self, name: str, *, with_queries: bool, by: str) -> Erasure:
        """Requests the erasure of a stream and what derives from it.

        Raises Problem(404 | 409) or Unavailable.
        """
        if is_reserved(name) or topics.stream_topic(name) in (topics.LATE, topics.SHED):
            raise Problem(
                409, "system_stream", f"{name!r} belongs to the system and cannot be erased"
            )
        if name not in self._tables.streams:
            raise Problem(404, "no_such_stream", f"no stream {name[:80]!r} is in the catalogue")
        queries = self.readers_of(name)
        if queries and not with_queries:
            raise Problem(
                409,
                "stream_is_read",
                f"stream {name!r} is read by {', '.join(queries)}: they would be removed with "
                "their results; ask with queries=true, or remove them first",
            )
        return await self._ask("stream", name, tuple(queries), by)

    async def ask_device(self, device: str, *, by: str) -> Erasure:
        """Requests the erasure of a device's readings in all streams.

        Raises Problem(409) or Unavailable.
        """
        return await self._ask("device", device, (), by)

    def readers_of(self, name: str) -> list[str]:
        """Returns the queries that read a stream, directly or by results of another query."""
        reads = {
            query: set(self._registry.streams_of(registration))
            for query, registration in self._tables.queries.items()
        }
        found, sources = set[str](), {name}
        while new := {query for query in reads if reads[query] & sources} - found:
            found |= new
            sources |= new
        return sorted(found)

    async def _ask(self, what: str, name: str, queries: tuple[str, ...], by: str) -> Erasure:
        async with self._turn:
            rows = self._tables.erasures
            same = [r for r in rows.values() if r.is_open and (r.what, r.name) == (what, name)]
            if same:
                raise Problem(
                    409, "under_way", f"{name!r} is being erased already; see erasure {same[0].id}"
                )
            if sum(row.is_open for row in rows.values()) >= OPEN_MAX:
                raise Problem(
                    409,
                    "too_many_erasures",
                    f"{OPEN_MAX} erasures are in progress, the most at once; wait for one",
                )
            ended = sorted((r.asked_at, r.id) for r in rows.values() if not r.is_open)
            for _, id_ in ended[: max(0, len(rows) + 1 - ROWS_MAX)]:
                await self._forget(id_)
            now_ms = self._clock.now_ms()
            wanted = [topics.stream_topic(name)] if what == "stream" else []
            row = Erasure(
                id=f"{now_ms}-{self._new_id()}",
                what="stream" if what == "stream" else "device",
                name=name,
                queries=queries,
                asked_at=now_ms,
                asked_by=by,
                step=STEPS[what][0],
                topics=await self._blocking(
                    lambda kafka: kafka.topic_ids([*wanted, *kafka.topics_of(queries)])
                ),
                has_lake=self._has_lake(),
                updated_at=now_ms,
            )
            await self._writer.write(topics.ERASURES, row.id, row)
        return row

    async def _forget(self, id_: str) -> None:
        for key in (report_key(id_, "lake"), report_key(id_, "analysis"), id_):
            await self._writer.write(topics.ERASURES, key, None)

    # --- working

    async def run(self, ready: asyncio.Event) -> None:
        """Carries out erasures, oldest first, until cancelled."""
        await ready.wait()
        try:
            while True:
                await self._clock.sleep(LOOK_S)
                for row in sorted(self._tables.erasures.values(), key=lambda row: row.asked_at):
                    if row.is_open and self._is_mine(row):
                        await self._safely(row)
        finally:
            self._is_stopping = True
            await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)
            if self._kafka is not None:
                self._kafka.close()

    def _is_mine(self, row: Erasure) -> bool:
        is_left = self._clock.now_ms() - row.updated_at > TAKEOVER_MS
        return row.worker in ("", self._own) or is_left

    async def _safely(self, row: Erasure) -> None:
        try:
            await self._work(row)
        except (Unavailable, LocalError, KafkaException, Problem) as error:
            log.warning("erasure %s waits: %s", row.id, error, extra={"event": "ops.erasure_waits"})
            await self._said(row, detail=str(error)[:300])

    async def _said(self, row: Erasure, *, detail: str) -> None:
        """Records what an erasure waits for, when that changed or a sign of life is due."""
        now_ms = self._clock.now_ms()
        if (row.detail, row.worker) == (detail, self._own) and (
            now_ms - row.updated_at < ALIVE_S * 1000
        ):
            return
        changed = row.model_copy(
            update={"detail": detail, "worker": self._own, "updated_at": now_ms}
        )
        try:
            await self._writer.write(topics.ERASURES, row.id, changed)
        except Unavailable as error:
            log.debug("erasure %s: %s", row.id, error)

    async def _work(self, row: Erasure) -> None:
        """Does one step as far as possible now."""
        working = asyncio.create_task(self._step(row))
        try:
            while not (await asyncio.wait({working}, timeout=ALIVE_S))[0]:
                await self._said(self._tables.erasures.get(row.id, row), detail=row.detail)
        finally:
            if not working.done():
                working.cancel()
        waits_for, facts = await working
        if waits_for:
            return await self._said(row, detail=waits_for)
        changed = row.model_copy(
            update={
                **facts,
                "step": row.following,
                "detail": "",
                "worker": self._own,
                "updated_at": self._clock.now_ms(),
            }
        )
        await self._writer.write(topics.ERASURES, row.id, changed)
        reach(f"erasure.{row.step}")
        log.info(
            "erasure %s of %s %s: %s is done", row.id, row.what, row.name, row.step,
            extra={"event": "ops.erasure", "holder": row.asked_by, "step": row.following.value},
        )  # fmt: skip
        return None

    async def _step(self, row: Erasure) -> tuple[str, dict[str, object]]:
        """Does a step. Returns what it waits for (empty: done), and the row with its findings."""
        match row.step:
            case Step.QUERIES:
                return await self._without_queries(row), {}
            case Step.SCAN:
                return "", {"cuts": await self._blocking(lambda kafka: kafka.cuts(row))}
            case Step.TOPICS:
                return await self._without_topics(row), {"deleted_at": self._clock.now_ms()}
            case Step.LAKE | Step.ANALYSIS:
                return self._reported(row)
            case Step.LOG:
                return await self._cut(row), {}
            case Step.SUMMARIES:
                return "", await self._without_summaries(row)
            case Step.SETTLE:
                return await self._settled(row)
            case Step.DONE:
                return "nothing", {}

    async def _without_queries(self, row: Erasure) -> str:
        for name in row.queries:
            registration = self._tables.queries.get(name)
            # A query of the same name that was registered since is a different one.
            if registration is not None and registration.registered_at <= row.asked_at:
                await self._registry.remove(name)
        told = [name for name in row.queries if name in self._tables.progress]
        is_patient = self._clock.now_ms() - row.asked_at < self._settle_ms
        return f"the analysis to let go of {', '.join(told)}" if told and is_patient else ""

    async def _without_topics(self, row: Erasure) -> str:
        waits_for = await self._blocking(lambda kafka: kafka.unsequenced(row.cuts, is_freed=False))
        if waits_for:
            return waits_for
        mine = topics.stream_topic(row.name)
        there = await self._blocking(lambda kafka: kafka.topic_ids(row.topics))
        # A server may have died after the deletion, and the stream may be a new one by now.
        is_old = there.get(mine) in (None, row.topics.get(mine))
        if is_old and row.name in self._tables.streams:
            await self._writer.write(topics.STREAMS, row.name, None)
        await self._blocking(lambda kafka: kafka.delete(row.topics))
        there = await self._blocking(lambda kafka: kafka.topic_ids(row.topics))
        old = [name for name, id_ in there.items() if row.topics[name] == id_]
        return f"Kafka to delete {old[0]}" if old else ""

    def _reported(self, row: Erasure) -> tuple[str, dict[str, object]]:
        is_lake = row.step is Step.LAKE
        if not (row.has_lake if is_lake else row.has_minutes):
            return "", {"left": LEFT[row.what]} if row.following is Step.DONE else {}
        part = "lake" if is_lake else "analysis"
        report: Report | None = self._tables.erased.get(report_key(row.id, part))
        if report is None:
            return f"{part} to remove its files; it does so while it runs", {}
        facts: dict[str, object] = {
            "files": row.files + report.files,
            "rows": row.rows + report.rows,
        }
        return "", facts | ({"left": LEFT[row.what]} if row.following is Step.DONE else {})

    async def _cut(self, row: Erasure) -> str:
        waits_for = await self._blocking(lambda kafka: kafka.unsequenced(row.cuts, is_freed=True))
        waits_for = waits_for or self._uncomputed(row)
        if not waits_for:
            await self._blocking(lambda kafka: kafka.cut(row.cuts))
        return waits_for

    def _uncomputed(self, row: Erasure) -> str:
        """Returns which query has not yet read other devices' records before the cut."""
        for cut in row.cuts:
            stream = cut.topic.removeprefix(topics.STREAM_PREFIX)
            for progress in self._tables.progress.values():
                reached = progress.reached.get(stream)
                at = None if reached is None else reached.offsets.get(cut.partition)
                is_running = progress.state in (QueryState.RUNNING, QueryState.RETRYING)
                if is_running and at is not None and at < cut.through:
                    return (
                        f"query {progress.query} to read {stream} to {cut.through}; it is at {at}"
                    )
        return ""

    async def _without_summaries(self, row: Erasure) -> dict[str, object]:
        removed, is_of_analysis = await self._blocking(lambda kafka: kafka.remove_summaries(row))
        is_end = row.following is Step.DONE
        return {
            "summaries": row.summaries + removed,
            "has_minutes": row.has_minutes or (is_of_analysis and row.what == "stream"),
        } | ({"left": LEFT[row.what]} if is_end else {})

    async def _settled(self, row: Erasure) -> tuple[str, dict[str, object]]:
        left_ms = (row.deleted_at or row.asked_at) + self._settle_ms - self._clock.now_ms()
        if left_ms > 0:
            return f"what the analysis has in hand, another {left_ms // 1000 + 1} s", {}
        return "", await self._without_summaries(row) if row.what == "stream" else {}

    def _blocking(self, work: Callable[[KafkaEraser], T]) -> Awaitable[T]:
        """Runs one piece of work at a time in a thread."""
        return asyncio.get_running_loop().run_in_executor(self._thread, self._with_kafka, work)

    def _with_kafka(self, work: Callable[[KafkaEraser], T]) -> T:
        if self._kafka is None:
            self._kafka = KafkaEraser(self._config, lambda: not self._is_stopping)
        try:
            return work(self._kafka)
        except (Unavailable, KafkaException):
            # Perhaps its clients never reach a broker again (cloud/kafka/mortal.py).
            self._kafka.close()
            self._kafka = None
            raise
