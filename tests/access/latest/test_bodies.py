"""Answers of many rows are made once for all who ask meanwhile, and kept no longer than needed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable

import pytest

from edgewake.cloud.access.bounded import bodies as module
from edgewake.cloud.access.bounded.bodies import Bodies, Body
from edgewake.protocol.errors import Unavailable


class Made:
    """How often an answer was made; each is one more than the one before."""

    def __init__(self, *, parts: int = 3, size: int = 10) -> None:
        self.times = 0
        self._parts, self._size = parts, size

    def __call__(self) -> AsyncIterator[bytes]:
        self.times += 1
        return self._told(b"%d" % self.times)

    async def _told(self, text: bytes) -> AsyncIterator[bytes]:
        for _ in range(self._parts):
            yield text * self._size
            await asyncio.sleep(0)


def text(body: Body) -> bytes:
    return b"".join(body.pieces)


async def test_who_asks_for_the_same_meanwhile_is_given_the_same() -> None:
    bodies, make = Bodies(), Made()
    first, second = await asyncio.gather(*(bodies.body("a", 1, make) for _ in range(2)))
    assert first is second
    assert (make.times, text(first), bodies.size) == (1, b"1" * 30, 30)
    other = await bodies.body("b", 1, make)
    newer = await bodies.body("a", 2, make)
    assert (text(other), text(newer), make.times) == (b"2" * 30, b"3" * 30, 3)
    del first, second, other, newer
    gc.collect()
    assert bodies.size == 0
    assert text(await bodies.body("a", 1, make)) == b"4" * 30, "nothing is kept for later"


async def test_of_many_states_the_newest_is_shared_while_it_is_fresh() -> None:
    now = [0.0]
    bodies, make = Bodies(now_s=lambda: now[0]), Made()
    held = []
    for state in range(module.SAME_MAX):
        now[0] = state / 1000
        held.append(await bodies.body("a", state, make))
    assert make.times == module.SAME_MAX
    now[0] = module.FRESH_S / 2
    assert await bodies.body("a", "next", make) is held[-1]
    now[0] = module.FRESH_S * 1.5
    assert await bodies.body("a", "next", make) not in held


async def test_more_than_there_is_room_for_is_refused_and_leaves_nothing() -> None:
    bodies = Bodies(bytes_max=100)
    held = await bodies.body("a", 1, Made(size=20))
    with pytest.raises(Unavailable):
        await bodies.body("b", 1, Made(size=20))
    gc.collect()
    assert bodies.size == held.size == 60
    assert (await bodies.body("c", 1, Made(size=10))).size == 30


async def test_who_hangs_up_takes_it_from_nobody() -> None:
    bodies, make = Bodies(), Made(parts=50)
    asked = [asyncio.create_task(bodies.body("a", 1, make)) for _ in range(2)]
    await asyncio.sleep(0)
    asked[0].cancel()
    assert len(text(await asked[1])) == 500
    assert make.times == 1
    await gone(asked[0])


async def gone(task: asyncio.Task[Body]) -> None:
    await asyncio.wait({task})
    assert task.cancelled()


async def test_what_fails_is_told_to_all_and_tried_anew() -> None:
    bodies = Bodies()

    async def broken() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.sleep(0)
        raise Unavailable("the stream was made anew")

    makes: list[Callable[[], AsyncIterator[bytes]]] = [broken, broken]
    found = await asyncio.gather(
        *(bodies.body("a", 1, make) for make in makes), return_exceptions=True
    )
    assert [type(one) for one in found] == [Unavailable, Unavailable]
    assert text(await bodies.body("a", 1, Made())) == b"1" * 30
