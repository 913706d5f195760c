"""Asks the brokers about topics: where partitions begin and end, and where a time is in them.

It also asks which topic a name stands for. A question is asked once for all clients that have it at
the same time: they come back all at once. Errors: Unavailable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec

from edgewake.cloud.kafka import clients, offsets
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.mortal import Admin
from edgewake.cloud.log.subscription import Bounds, Source
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable

ADMIN_TIMEOUT_S: Final = 5.0
"""Seconds for one question, which librdkafka keeps."""
LOST_S: Final = 2 * ADMIN_TIMEOUT_S
"""Seconds after which a question counts as lost that librdkafka has not ended: all who ask the same
share one answer, and would wait for ever."""
BOUNDS_KEPT_S: Final = 0.5
"""How long known bounds are answered; before a gap is announced Kafka is asked again."""

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SingleFlight(Generic[K, T]):
    """Runs one question at a time for each key; callers meanwhile share its answer.

    Who is cancelled does not take the answer from others.
    """

    def __init__(self, ask: Callable[[K], Awaitable[T]]) -> None:
        self._ask = ask
        self._asking: dict[K, asyncio.Task[T]] = {}
        self._next: dict[K, asyncio.Task[T]] = {}

    async def get(self, key: K) -> T:
        """The answer, of a question that may have been asked already."""
        asking = self._asking.get(key)
        if asking is None or asking.done():  # an answer of before is not given again
            asking = self._start(key)
        return await asyncio.shield(asking)

    async def get_fresh(self, key: K) -> T:
        """The answer to a question that is asked after this call.

        It is shared with all who come before it is asked.
        """
        asking = self._asking.get(key)
        if asking is None:
            return await asyncio.shield(self._start(key))
        if key not in self._next:
            self._next[key] = asyncio.create_task(self._after(key, asking))
        return await asyncio.shield(self._next[key])

    def _start(self, key: K) -> asyncio.Task[T]:
        asking = self._asking[key] = asyncio.create_task(self._answer(key))
        asking.add_done_callback(lambda done: self._done(key, done))
        return asking

    async def _answer(self, key: K) -> T:
        return await self._ask(key)

    def _done(self, key: K, done: asyncio.Task[T]) -> None:
        if self._asking.get(key) is done:
            del self._asking[key]
        if not done.cancelled():
            done.exception()  # waiters have it already; without a waiter nobody needs it

    async def _after(self, key: K, before: asyncio.Task[T]) -> T:
        await asyncio.wait({before})
        del self._next[key]
        return await asyncio.shield(self._asking.get(key) or self._start(key))


class AskKafka:
    """Asks brokers for offsets; equal questions that overlap share one answer."""

    def __init__(self, config: KafkaConfig, clock: Clock) -> None:
        self.questions = 0
        """About bounds, since the start."""
        self._admin: Admin = clients.admin(config)
        self._clock = clock
        self._known: dict[tuple[Source, ...], tuple[float, list[list[Bounds]]]] = {}
        self._bounds: SingleFlight[tuple[Source, ...], list[list[Bounds]]] = SingleFlight(
            self._ask_bounds
        )

    async def bounds(
        self, sources: tuple[Source, ...], *, fresh: bool = False
    ) -> list[list[Bounds]]:
        """What is kept of each partition of each source."""
        if fresh:
            return await self._bounds.get_fresh(sources)
        now = self._clock.monotonic_s()
        asked, known = self._known.get(sources, (-BOUNDS_KEPT_S, []))
        return known if now - asked < BOUNDS_KEPT_S else await self._bounds.get(sources)

    async def offsets_at(self, sources: Sequence[Source], ms: int) -> dict[tuple[str, int], int]:
        """By topic and partition: the first record that entered the cloud at `ms` or later.

        -1: there is no such record yet.
        """
        return await self._offsets(_all_partitions(sources), OffsetSpec.for_timestamp(ms))

    async def topic_ids(self, names: Sequence[str]) -> dict[str, str]:
        """Kafka's ids of topics: a recreated topic has another one."""
        with _unavailable():
            asked = self._admin.describe_topics(
                TopicCollection(list(names)), request_timeout=ADMIN_TIMEOUT_S
            )
            async with asyncio.timeout(LOST_S):
                return {
                    name: str((await asyncio.wrap_future(future)).topic_id)
                    for name, future in asked.items()
                }

    async def _ask_bounds(self, sources: tuple[Source, ...]) -> list[list[Bounds]]:
        self.questions += 1
        partitions = _all_partitions(sources)
        asked_s = self._clock.monotonic_s()
        earliest = await self._offsets(partitions, OffsetSpec.earliest())
        latest = await self._offsets(partitions, OffsetSpec.latest())
        found = [
            [Bounds(earliest[s.topic, p], latest[s.topic, p]) for p in range(s.partitions)]
            for s in sources
        ]
        self._known = {
            key: value for key, value in self._known.items() if asked_s - value[0] < BOUNDS_KEPT_S
        }
        self._known[sources] = (asked_s, found)
        return found

    async def _offsets(
        self, partitions: Sequence[TopicPartition], spec: OffsetSpec
    ) -> dict[tuple[str, int], int]:
        """The end is the one of committed records."""
        with _unavailable():
            async with asyncio.timeout(LOST_S):
                return await self._listed_by_leaders(partitions, spec)

    async def _listed_by_leaders(
        self, partitions: Sequence[TopicPartition], spec: OffsetSpec
    ) -> dict[tuple[str, int], int]:
        try:
            return await self._listed(partitions, spec)
        except KafkaException as error:
            if not offsets.is_of_another_leader(error):
                raise
        for future in offsets.ask_for_leaders(self._admin, partitions, ADMIN_TIMEOUT_S):
            await asyncio.wrap_future(future)
        return await self._listed(partitions, spec)

    async def _listed(
        self, partitions: Sequence[TopicPartition], spec: OffsetSpec
    ) -> dict[tuple[str, int], int]:
        asked = self._admin.list_offsets(
            dict.fromkeys(partitions, spec),
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=ADMIN_TIMEOUT_S,
        )
        return {
            (one.topic, one.partition): (await asyncio.wrap_future(future)).offset
            for one, future in asked.items()
        }


@contextmanager
def _unavailable() -> Iterator[None]:
    """Kafka refused a question, or did not answer it: Unavailable."""
    try:
        yield
    except KafkaException as error:
        raise Unavailable(f"Kafka: {error.args[0].str()}") from error
    except TimeoutError as error:
        raise Unavailable(f"Kafka: no answer within {LOST_S:g} s") from error


def _all_partitions(sources: Iterable[Source]) -> list[TopicPartition]:
    return [TopicPartition(source.topic, p) for source in sources for p in range(source.partitions)]
