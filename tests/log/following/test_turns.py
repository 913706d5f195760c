"""Turns of the event loop: live work first, nobody starves, and no slice is longer than its
budget.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from edgewake.cloud.log.following.turns import IsTimeUp, Turns
from edgewake.protocol.clock import FakeClock

BUDGET_S = 0.004


def turns_on(clock: FakeClock, failed: list[Exception] | None = None) -> Turns:
    return Turns(clock, budget_s=BUDGET_S, on_error=(failed if failed is not None else []).append)


def job(
    clock: FakeClock, log: list[str], name: str, pieces: int, *, piece_s: float = 0.001
) -> Callable[[IsTimeUp], bool]:
    """Work of `pieces` pieces that looks at the clock after each."""
    left = pieces

    def work(is_time_up: IsTimeUp) -> bool:
        nonlocal left
        while left:
            left -= 1
            clock.advance(piece_s)
            log.append(name)
            if is_time_up():
                break
        return left > 0

    return work


async def settled(turns: Turns) -> None:
    while turns._handle is not None:
        await asyncio.sleep(0)


async def test_live_work_goes_first_and_catching_up_gets_a_turn_in_every_slice() -> None:
    clock, log = FakeClock(), list[str]()
    turns = turns_on(clock)
    turns.add(job(clock, log, "behind", 10), live=False)
    turns.add(job(clock, log, "live", 8), live=True)
    await asyncio.sleep(0)
    assert log == ["live"] * 4 + ["behind"]
    await settled(turns)
    assert log == (["live"] * 4 + ["behind"]) * 2 + ["behind"] * 8


async def test_those_who_catch_up_take_turns() -> None:
    clock, log = FakeClock(), list[str]()
    turns = turns_on(clock)
    for name in "abc":
        turns.add(job(clock, log, name, 8), live=False)
    await settled(turns)
    assert "".join(log) == "aaaabbbbcccc" * 2


async def test_sockets_have_their_turn_between_two_slices() -> None:
    clock, log = FakeClock(), list[str]()
    turns = turns_on(clock)
    turns.add(job(clock, log, "work", 12), live=False)
    await asyncio.sleep(0)
    log.append("socket")
    await settled(turns)
    assert log == [*["work"] * 4, "socket", *["work"] * 8]
    assert turns.longest_s <= BUDGET_S * 1.3


async def test_a_job_that_fails_is_reported_once_and_the_others_go_on() -> None:
    clock, log, failed = FakeClock(), list[str](), list[Exception]()
    turns = turns_on(clock, failed)

    def broken(_: IsTimeUp) -> bool:
        raise ValueError("broken")

    turns.add(broken, live=True)
    turns.add(job(clock, log, "other", 2), live=False)
    await settled(turns)
    assert (log, [str(error) for error in failed]) == (["other"] * 2, ["broken"])
