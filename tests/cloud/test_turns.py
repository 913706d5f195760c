"""Turns: whoever asks much waits for itself, and another's question is next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from edgewake.cloud.client_share import Bound
from edgewake.cloud.turns import Turns
from edgewake.protocol.errors import Unavailable


async def taken(turns: Turns, holder: str) -> asyncio.Task[Callable[[], None]]:
    """A question that has its turn, or waits for it."""
    task = asyncio.ensure_future(turns.take(holder))
    for _ in range(5):
        await asyncio.sleep(0)
    return task


def over(*tasks: asyncio.Task[Callable[[], None]]) -> None:
    for task in tasks:
        task.result()()


async def test_one_holder_leaves_a_place_to_others() -> None:
    turns = Turns(Bound("questions", 100), 3)
    first, second, third = [await taken(turns, "much") for _ in range(3)]
    assert (first.done(), second.done(), third.done()) == (True, True, False)
    other = await taken(turns, "other")
    assert other.done()

    over(first)
    over_third = await asyncio.wait_for(third, 5)
    over_third()
    over(second, other)


async def test_where_one_runs_at_once_a_holder_may_have_it() -> None:
    turns = Turns(Bound("questions", 100), 1)
    task = await taken(turns, "a")
    assert task.done()
    over(task)


async def test_over_its_share_a_holder_is_refused_and_others_are_not() -> None:
    bound = Bound("questions", 8)
    turns = Turns(bound, 2)
    held = [await taken(turns, "much") for _ in range(bound.own_max)]
    refused = await taken(turns, "much")
    with pytest.raises(Unavailable, match=f"you hold {bound.own_max} questions"):
        refused.result()
    other = await taken(turns, "other")
    over(other)
    for task in held:
        task.cancel()


async def test_who_gives_up_waiting_holds_nothing_any_more() -> None:
    turns = Turns(Bound("questions", 20), 2)
    running = await taken(turns, "a")
    for _ in range(20):
        waiting = await taken(turns, "a")
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait({waiting})
    over(running)
    await asyncio.sleep(0)
    again = await taken(turns, "a")
    assert again.done()
    over(again)


async def test_the_system_s_own_questions_wait_for_nobody() -> None:
    turns = Turns(Bound("questions", 4), 2)
    own = [await taken(turns, "") for _ in range(4)]
    assert all(task.done() for task in own)
    fifth = await taken(turns, "")
    with pytest.raises(Unavailable):
        fifth.result()
    over(*own)
