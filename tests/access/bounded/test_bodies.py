"""Answers of many rows are made once for all who ask meanwhile, and kept no longer than needed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable

import pytest

from edgewake.cloud.access.bounded import bodies as module
from edgewake.cloud.access.bounded.bodies import Bodies, Taken, due
from edgewake.cloud.log.hub_bounds import Full
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


def text(taken: Taken) -> bytes:
    return b"".join(taken.body.pieces)


async def test_who_asks_for_the_same_meanwhile_is_given_the_same() -> None:
    bodies, make = Bodies(), Made()
    first, second = await asyncio.gather(*(bodies.body("a", 1, make, client="x") for _ in range(2)))
    assert first.body is second.body
    assert (make.times, text(first), bodies.size) == (1, b"1" * 30, 30)
    other = await bodies.body("b", 1, make, client="x")
    newer = await bodies.body("a", 2, make, client="x")
    assert (text(other), text(newer), make.times) == (b"2" * 30, b"3" * 30, 3)
    del first, second, other, newer
    gc.collect()
    assert bodies.size == 0
    assert text(await bodies.body("a", 1, make, client="x")) == b"4" * 30, (
        "nothing is kept for later"
    )


async def test_of_many_states_the_newest_is_shared_while_it_is_fresh() -> None:
    now = [0.0]
    bodies, make = Bodies(now_s=lambda: now[0]), Made()
    held = []
    for state in range(module.SAME_MAX):
        now[0] = state / 1000
        held.append(await bodies.body("a", state, make, client="x"))
    assert make.times == module.SAME_MAX
    now[0] = module.FRESH_S / 2
    assert (await bodies.body("a", "next", make, client="x")).body is held[-1].body
    now[0] = module.FRESH_S * 1.5
    assert (await bodies.body("a", "next", make, client="x")).body not in [one.body for one in held]


async def test_more_than_there_is_room_for_is_refused_and_leaves_nothing() -> None:
    bodies = Bodies(bytes_max=100, share=1)
    held = await bodies.body("a", 1, Made(size=20), client="x")
    with pytest.raises(Unavailable):
        await bodies.body("b", 1, Made(size=20), client="x")
    gc.collect()
    assert bodies.size == held.body.size == 60
    assert (await bodies.body("c", 1, Made(size=10), client="x")).body.size == 30


async def test_who_hangs_up_takes_it_from_nobody() -> None:
    bodies, make = Bodies(), Made(parts=50)
    asked = [asyncio.create_task(bodies.body("a", 1, make, client="x")) for _ in range(2)]
    await asyncio.sleep(0)
    asked[0].cancel()
    assert len(text(await asked[1])) == 500
    assert make.times == 1
    await gone(asked[0])


async def gone(task: asyncio.Task[Taken]) -> None:
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
        *(bodies.body("a", 1, make, client="x") for make in makes), return_exceptions=True
    )
    assert [type(one) for one in found] == [Unavailable, Unavailable]
    assert text(await bodies.body("a", 1, Made(), client="x")) == b"1" * 30


@pytest.mark.parametrize("share", [0.25, 1.0], ids=["", "control"])
async def test_a_greedy_client_leaves_room_for_another(share: float) -> None:
    """Control: without the share it leaves none."""
    bodies = Bodies(bytes_max=4000, share=share)
    asked = [bodies.body(number, 0, Made(size=50), client="greedy") for number in range(100)]
    held = await asyncio.gather(*asked, return_exceptions=True)
    refused = [one for one in held if isinstance(one, Full)]
    assert 0 < len(refused) < 100, "it took what it could"
    assert all("read what you are being sent first" in str(one) for one in refused)
    if share < 1:
        other = await bodies.body("other", 0, Made(size=50), client="another")
        assert len(text(other)) == 150
    else:
        with pytest.raises(Full):
            await bodies.body("other", 0, Made(size=50), client="another")


async def test_a_share_is_held_by_what_a_client_is_sent_also_where_others_are_too() -> None:
    bodies, make = Bodies(bytes_max=600, share=0.25), Made(size=20)
    first = await bodies.body("a", 0, make, client="x")
    second = await bodies.body("b", 0, make, client="x")
    with pytest.raises(Full, match="you hold"):
        await bodies.body("c", 0, make, client="x")
    shared = await bodies.body("a", 0, make, client="y")
    assert shared.body is first.body
    assert bodies.size == 120
    first.close()
    assert bodies.refusal("x") is None, "it may take more, though the other one still reads"
    third = await bodies.body("c", 0, make, client="x")
    with pytest.raises(Full):
        await bodies.body("a", 0, make, client="x")
    assert shared.body.takers == {"y": 1}
    for one in (second, third, shared):
        one.close()
    assert bodies.of == {}


async def test_one_answer_is_given_however_large_it_is() -> None:
    bodies = Bodies(bytes_max=1000, share=0.1)
    whole = await bodies.body("a", 0, Made(size=100), client="x")
    assert whole.body.size == 300
    with pytest.raises(Full):
        bodies.take(bodies.whole(b"changes"), client="x")
    whole.close()
    assert bodies.take(bodies.whole(b"changes"), client="x").body.size == 7


async def test_what_nobody_waits_for_any_more_is_not_made_to_its_end() -> None:
    """Who asks and hangs up would fill the room with what is nobody's."""
    bodies, reached = Bodies(), asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * module.PIECE_BYTES
            reached.set()
            await asyncio.sleep(0)

    asked = asyncio.create_task(bodies.body("a", 0, endless, client="x"))
    await reached.wait()
    assert bodies.size > 0
    (making,) = [task for task in asyncio.all_tasks() if task.get_name() == "rows"]
    asked.cancel()
    await asyncio.wait({asked, making})
    assert making.cancelled()
    assert (bodies.size, bodies.of) == (0, {})


def test_who_takes_too_little_is_cut_off() -> None:
    begun = module.GRACE_S
    assert due(0, 0, 0, stall_s=100) == begun, "at first it has the grace"
    second = module.TAKE_BYTES_PER_S
    assert due(0, 60 * second, begun, stall_s=100) == begun + 60, "a second for so many bytes"
    assert due(0, 9999 * second, 40, stall_s=30) == 70, "who was fast may not stop either"
