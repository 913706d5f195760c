"""A page that many wait for is read once, and whoever leaves takes it from nobody."""

from __future__ import annotations

import asyncio

import pytest

from edgewake.cloud.access.bounded.answer import Page
from edgewake.cloud.access.bounded.shared import SharedReads, ShowSoFar
from edgewake.protocol.errors import Unavailable

PAGE = Page((b"{}",), "c", live=True)


class Reading:
    """It ends when it is told to; it counts how often it began, and was given up."""

    def __init__(self) -> None:
        self.began = self.given_up = 0
        self.so_far: Page | None = None
        self.end: asyncio.Future[Page] = asyncio.get_running_loop().create_future()

    async def __call__(self, show: ShowSoFar) -> Page:
        self.began += 1
        show(lambda: self.so_far)
        try:
            return await asyncio.shield(self.end)
        except asyncio.CancelledError:
            self.given_up += 1
            raise


def never() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


async def test_it_is_read_once_and_not_given_to_who_asks_later() -> None:
    shared, reading = SharedReads(), Reading()
    asked = [asyncio.create_task(shared.page("a", reading, never(), wait_s=60)) for _ in range(3)]
    await asyncio.sleep(0)
    reading.end.set_result(PAGE)
    assert await asyncio.gather(*asked) == [PAGE] * 3
    assert (reading.began, len(shared)) == (1, 0)
    assert await shared.page("a", reading, never(), wait_s=60) == PAGE
    assert reading.began == 2


async def test_who_hangs_up_or_waits_no_longer_takes_it_from_nobody() -> None:
    shared, reading, over = SharedReads(), Reading(), never()
    stays, leaves, ends = [
        asyncio.create_task(shared.page("a", reading, one, wait_s=60))
        for one in (never(), never(), over)
    ]
    await asyncio.sleep(0)
    leaves.cancel()
    over.set_result(None)
    assert await ends is None
    assert await shared.page("a", reading, never(), wait_s=0) is None
    reading.end.set_result(PAGE)
    assert await stays == PAGE
    assert (reading.began, reading.given_up) == (1, 0)


async def test_who_waits_no_longer_is_told_how_the_page_of_the_others_stands() -> None:
    shared, reading = SharedReads(), Reading()
    others = asyncio.create_task(shared.page("a", reading, never(), wait_s=60))
    await asyncio.sleep(0)
    assert await shared.page("a", reading, never(), wait_s=0) is None, "nothing is known yet"
    reading.so_far = Page((), "here", live=True)
    assert await shared.page("a", reading, never(), wait_s=0) == reading.so_far
    assert reading.began == 1
    others.cancel()


async def test_a_page_that_nobody_waits_for_is_given_up() -> None:
    shared, reading = SharedReads(), Reading()
    assert await shared.page("a", reading, never(), wait_s=0.01) is None
    await asyncio.sleep(0)
    assert (reading.began, reading.given_up, len(shared)) == (1, 1, 0)


async def test_what_goes_wrong_is_told_to_all_who_wait() -> None:
    shared, reading = SharedReads(), Reading()
    asked = [asyncio.create_task(shared.page("a", reading, never(), wait_s=60)) for _ in range(2)]
    await asyncio.sleep(0)
    reading.end.set_exception(Unavailable("Kafka is away"))
    for one in asked:
        with pytest.raises(Unavailable):
            await one
    assert len(shared) == 0
