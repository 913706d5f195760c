"""One page's reading on a real hub over streams in memory: where it ends, and with which cursor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from edgewake.cloud.access.bounded import read
from edgewake.cloud.access.bounded.answer import Bounds, Page
from edgewake.cloud.access.bounded.read import BoundedRead
from edgewake.cloud.log.request import OnGap, Request, request
from edgewake.cloud.log.wanted import FREE, Pace
from edgewake.cloud.rights.principal import ANYBODY
from edgewake.protocol.errors import Unavailable
from tests.log.memory_hub import MemoryHub, left_empty, turns, until


class Reads:
    """Makes readings of the one stream."""

    def __init__(self, memory: MemoryHub) -> None:
        self.memory = memory

    def asked(self, cursor: str | None = None, **more: Any) -> Request:
        now_ms = self.memory.clock.now_ms()
        start = None if cursor else "earliest"
        return request(["s"], now_ms=now_ms, start=start, cursors=(cursor,), **more)

    @asynccontextmanager
    async def begun(
        self,
        cursor: str | None = None,
        *,
        limit: int = 10,
        wait_s: float = 0.0,
        pace: Pace = FREE,
        **more: Any,
    ) -> AsyncIterator[BoundedRead]:
        hub, asked = self.memory.hub, self.asked(cursor, **more)
        plan = await hub.open(asked.subscription, ANYBODY)
        try:
            start = await hub.start(plan, asked)
            bounds = Bounds(limit, wait_s)
            yield BoundedRead(
                hub, plan, start, asked.on_gap, bounds=bounds, pace=pace, clock=self.memory.clock
            )
        finally:
            hub.close(plan)

    async def page(self, cursor: str | None = None, **more: Any) -> Page:
        async with self.begun(cursor, **more) as reading:
            return await reading.page()


@pytest.fixture
async def reads() -> AsyncIterator[Reads]:
    async with left_empty(MemoryHub()) as memory:
        yield Reads(memory)


def numbers(page: Page) -> list[Any]:
    """The numbers of its readings; of what is none its kind."""
    found = [orjson.loads(one) for one in page.events]
    return [one.get("$event") or one["seq"] for one in found]


@pytest.mark.parametrize(
    ("there", "expected", "live"),
    [
        (0, [], True),
        (1, [1], True),
        (2, [1, 2], True),
        (3, [1, 2, 3], False),
        (4, [1, 2, 3], False),
    ],
)
@pytest.mark.parametrize("records", ["one record", "a record each"])
async def test_a_page_has_what_is_there_up_to_its_limit(
    reads: Reads, there: int, expected: list[int], live: bool, records: str
) -> None:
    """What fits into it exactly may be followed by more: only an unfilled page is at the end."""
    if records == "one record" and there:
        reads.memory.send(*({} for _ in range(there)))
    else:
        for _ in range(there):
            reads.memory.send({})
    page = await reads.page(limit=3)
    assert numbers(page) == expected
    assert page.live is live or there == 3, "at the limit either is true"
    rest = await reads.page(page.cursor)
    assert (numbers(rest), rest.live) == (list(range(4, there + 1)), True)


async def test_a_page_ends_at_its_bytes_with_the_event_that_passed_them(
    reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads.memory.send({"text": "x" * 500}, {"text": "x" * 500}, {})
    monkeypatch.setattr(read, "BYTES_MAX", 600)
    page = await reads.page()
    assert (numbers(page), page.live) == ([1, 2], False)
    monkeypatch.setattr(read, "BYTES_MAX", 1)
    assert numbers(await reads.page(page.cursor)) == [3], "one event at least, however large"


async def test_who_waits_gets_the_first_event_and_else_an_empty_page_of_the_live_end(
    reads: Reads,
) -> None:
    waiting = asyncio.create_task(reads.page(wait_s=30))
    await turns()
    reads.memory.send({})
    async with asyncio.timeout(10):
        page = await waiting
    assert (numbers(page), page.live) == ([1], True)
    empty = await reads.page(page.cursor, wait_s=0.02)
    assert (numbers(empty), empty.live, empty.cursor) == ([], True, page.cursor)


async def test_a_page_that_is_ended_has_what_it_has_and_does_not_say_that_this_is_all(
    reads: Reads,
) -> None:
    async with reads.begun(wait_s=30) as reading:
        reading.end()
        reading.end()
        page = await reading.page()
        assert (numbers(page), page.live, page.is_whole) == ([], False, False)
    async with reads.begun(wait_s=30) as reading:
        waiting = asyncio.create_task(reading.page())
        await turns()
        reading.end()
        async with asyncio.timeout(10):
            page = await waiting
        assert (numbers(page), page.live, page.is_whole) == ([], False, False)


async def test_how_it_stands_is_known_while_it_waits_at_the_live_end_and_only_then(
    reads: Reads,
) -> None:
    async with reads.begun(wait_s=30) as reading:
        assert reading.so_far() is None, "nothing was read yet"
        waiting = asyncio.create_task(reading.page())
        await until(reading.so_far)
        so_far = reading.so_far()
        assert so_far is not None
        assert (so_far.events, so_far.live) == ((), True)
        reads.memory.send({})
        await waiting
        assert reading.so_far() is None, "it is over"


async def test_what_is_filtered_out_moves_the_cursor(reads: Reads) -> None:
    reads.memory.send({"n": 1}, {"n": 2})
    hidden = await reads.page(where="n > 5")
    assert (numbers(hidden), hidden.live) == ([], True)
    reads.memory.send({"n": 9})
    assert numbers(await reads.page(hidden.cursor, where="n > 0")) == ["gap", 3]


async def test_older_records_that_cannot_be_read_are_not_the_end(
    reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "READ_S", 0.02)
    monkeypatch.setattr(read, "LOOK_S", 0.005)
    reads.memory.send({})
    reads.memory.evict()
    start = await reads.page(limit=1)
    reads.memory.log.is_away = True
    reads.memory.hub.streams.by_name["s"].latest[0] = 5
    async with reads.begun(start.cursor) as reading:
        page = await reading.page()
    assert (numbers(page), page.live, page.is_whole) == ([], False, False)
    reads.memory.hub.streams.by_name["s"].latest[0] = 0


ON_GAP = pytest.mark.parametrize(
    ("on_gap", "expected"), [(OnGap.EARLIEST, ["gap", 3]), (OnGap.STOP, ["gap"])]
)


async def behind_the_first(reads: Reads) -> str:
    """The cursor behind the first of three events."""
    reads.memory.send({})
    begins = await reads.page(limit=1)
    reads.memory.send({})
    reads.memory.send({})
    return begins.cursor


@ON_GAP
async def test_a_range_that_is_lost_is_a_gap_among_the_events(
    reads: Reads, on_gap: OnGap, expected: list[Any]
) -> None:
    begins = await behind_the_first(reads)
    reads.memory.trim(2)
    page = await reads.page(begins, on_gap=on_gap.value)
    assert (numbers(page), page.live) == (expected, on_gap is not OnGap.STOP)
    if on_gap is OnGap.STOP:
        assert numbers(await reads.page(page.cursor, on_gap="earliest"))[-1] == 3


@ON_GAP
async def test_what_is_lost_while_it_is_read_is_a_gap_too(
    reads: Reads, on_gap: OnGap, expected: list[Any]
) -> None:
    begins = await behind_the_first(reads)
    async with reads.begun(begins, on_gap=on_gap.value) as reading:
        reads.memory.trim(2)  # it stands before what was deleted in this moment
        page = await reading.page()
    assert (numbers(page), page.live) == (expected, on_gap is not OnGap.STOP)


async def test_a_stream_that_ends_meanwhile_is_come_again_for_with_the_cursor(
    reads: Reads,
) -> None:
    waiting = asyncio.create_task(reads.page(wait_s=30))
    await turns()
    reads.memory.close_stream()
    with pytest.raises(Unavailable, match=r"its topic was recreated; come again with your cursor"):
        await waiting
    reads.memory.follow("s")


async def test_with_conflation_a_page_has_of_each_thing_the_latest_and_counts_the_others(
    reads: Reads,
) -> None:
    for device in "abab":
        reads.memory.send({"device": device})
    reads.memory.send({"device": "c"})
    pace = Pace(conflate_ms=1000)
    page = await reads.page(pace=pace)
    assert (numbers(page), page.superseded, page.live) == ([3, 4, 5], 2, True)
    two = await reads.page(pace=pace, limit=2)
    assert len(two.events) == 2, "its limit counts things"
    rest = await reads.page(two.cursor, pace=pace)
    assert {*numbers(two), *numbers(rest)} >= {3, 4, 5}, "of each the latest comes"


async def test_things_are_told_apart_by_fields_that_are_not_selected(reads: Reads) -> None:
    """All devices were one thing, of which the last event alone came."""
    reads.memory.send({"device": "a", "n": 1}, {"device": "b", "n": 2}, {"device": "a", "n": 3})
    page = await reads.page(pace=Pace(1000), select="n, seq")
    assert (numbers(page), page.superseded) == ([2, 3], 1)
    by_line = await reads.page(pace=Pace(1000, per=("n",)), select="seq")
    assert (numbers(by_line), by_line.superseded) == ([1, 2, 3], 0)


async def test_who_hangs_up_leaves_the_hub(reads: Reads) -> None:
    waiting = asyncio.create_task(reads.page(wait_s=30))
    await turns()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
