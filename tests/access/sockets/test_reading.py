"""What one WebSocket subscription reads: chunks that are cut where its credits end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from edgewake.cloud.access.slow.treated import Slots
from edgewake.cloud.access.sockets.reading import Reading
from edgewake.cloud.held_bytes import HeldBytes
from edgewake.cloud.log.following.cohort import Lost
from edgewake.cloud.log.following.subscriber import ViewEnded
from edgewake.cloud.log.request import OnGap, request
from edgewake.cloud.log.wanted import FREE, Pace
from edgewake.cloud.rights.principal import ANYBODY
from tests.log.memory_hub import CODEC, MemoryHub, left_empty, turns, until


class Client:
    """A reading, and what it gave."""

    def __init__(self, memory: MemoryHub) -> None:
        self.memory = memory
        self.reading: Reading
        self.wakes = 0

    async def begin(self, pace: Pace = FREE) -> None:
        hub = self.memory.hub
        asked = request(["s"], now_ms=0, start="earliest")
        plan = await hub.open(asked.subscription, ANYBODY)
        self.reading = Reading(
            hub,
            plan,
            await hub.start(plan, asked),
            self._woken,
            pace=pace,
            account=HeldBytes().account("c"),
            clock=self.memory.clock,
        )

    def _woken(self) -> None:
        self.wakes += 1

    async def next(self, most: int | None = None) -> list[int]:
        """The numbers of what comes next."""
        found: Any = None

        def is_there() -> bool:
            nonlocal found
            found = self.reading.next(most)
            return found is not None

        await until(is_there)
        assert not isinstance(found, Lost)
        texts, count = found
        events = orjson.loads(b"[" + texts + b"]")
        assert len(events) == count
        return [event["data"]["seq"] for event in events]

    @property
    def place(self) -> tuple[int, int]:
        """Where a client would go on that comes again."""
        ((where,),) = (one.partitions for one in CODEC.decode(self.reading.cursor()).streams)
        return where


@asynccontextmanager
async def client(pace: Pace = FREE) -> AsyncIterator[Client]:
    async with left_empty(MemoryHub()) as memory:
        here = Client(memory)
        await here.begin(pace)
        try:
            yield here
        finally:
            here.reading.close()


@pytest.mark.parametrize(
    ("most", "expected"),
    [(1, [[1], [2], [3]]), (2, [[1, 2], [3]]), (3, [[1, 2, 3]]), (4, [[1, 2, 3]])],
)
async def test_a_chunk_is_cut_where_the_credits_end_and_its_cursor_stands_there(
    most: int, expected: list[list[int]]
) -> None:
    async with client() as c:
        c.memory.send({}, {}, {})
        for numbers in expected:
            assert await c.next(most) == numbers
            last = numbers[-1]
            assert c.place == ((1, 0) if last == 3 else (0, last))
            assert (c.reading.behind().records == 0) is (last == 3)
        assert c.reading.next(most) is None
        await turns()
        assert c.reading.is_live


async def test_one_that_holds_half_a_chunk_is_not_live() -> None:
    async with client() as c:
        c.memory.send({}, {})
        await c.next(1)
        await turns()
        assert not c.reading.is_live
        c.memory.send({})
        assert await c.next(1) == [2], "what is held comes first"
        assert await c.next(1) == [3]


async def test_who_skips_with_half_a_chunk_held_is_given_no_more_of_it() -> None:
    async with client() as c:
        c.memory.send({}, {}, {})
        assert await c.next(1) == [1]
        (gap,) = c.reading.skip()
        assert gap.event.fields["reason"] == "slow"
        assert c.reading.skip() == []
        c.memory.send({})
        assert await c.next() == [4]


async def test_who_stands_at_the_live_end_has_nothing_to_skip() -> None:
    async with client() as c:
        assert c.reading.skip() == []
        c.memory.send({})
        assert await c.next() == [1]
        assert c.reading.skip() == []


async def test_who_conflates_with_half_a_chunk_held_is_given_the_latest_of_the_rest() -> None:
    async with client() as c:
        c.memory.send({"device": "a"}, {"device": "a"}, {"device": "b"}, {"device": "a"})
        assert await c.next(1) == [1]
        assert c.reading.conflate(Slots(share=1), "c")
        assert await c.next() == [3, 4]
        assert (c.reading.superseded(), c.reading.superseded()) == (1, 0)


async def test_a_lost_range_is_given_as_one_and_it_goes_on_behind_it() -> None:
    async with client() as c:
        for _ in range(3):
            c.memory.send({})
        c.memory.trim(2)
        lost: list[Lost] = []

        def is_lost() -> bool:
            found = c.reading.next(5)
            if isinstance(found, Lost):
                lost.append(found)
            return bool(lost)

        await until(is_lost)
        gap = await c.reading.gap(lost[0], OnGap.EARLIEST)
        assert gap.event.fields["reason"] == "retention"
        assert await c.next(5) == [3]


async def test_who_has_been_given_nothing_is_woken_and_who_closed_is_not() -> None:
    async with client() as c:
        assert c.reading.next(1) is None
        await turns()
        c.wakes = 0
        c.memory.send({})
        await turns()
        assert c.wakes == 1
        assert await c.next(1) == [1]
        c.reading.next(1)
        c.reading.close()
        c.memory.send({})
        await turns()
        assert c.wakes == 1
        await c.begin()


async def test_a_stream_that_ends_is_said_after_what_was_held() -> None:
    """What was read already is given: a client that comes again reads it once more otherwise."""
    async with client() as c:
        c.memory.send({}, {})
        assert await c.next(1) == [1]
        c.memory.close_stream()
        assert await c.next(1) == [2]
        with pytest.raises(ViewEnded, match="recreated"):
            c.reading.next(1)
        c.memory.follow("s")
