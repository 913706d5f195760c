"""When an action is taken: by clocks that jump, at the edges of its time, with pauses, and over a
way that comes and goes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from edgewake.edge.actions.action import Act, ActionFailed
from edgewake.edge.actions.alert import Alert
from edgewake.edge.actions.progress import Outcome, Progress, decode
from edgewake.edge.actions.runner import RETRY_MAX_S, ActionRunner
from edgewake.edge.log.event_log import EventLog
from edgewake.protocol.clock import CLOCK_FLOOR_MS
from tests.edge.actions.helpers import HeldClock, config, runs, until
from tests.edge.helpers import opened

NOW_MS = 1_790_000_000_000


class Acting:
    """An action of ours: what it does, and whether the way there is."""

    def __init__(self, act: Callable[[Alert], Awaitable[None]] | None = None) -> None:
        self.done: list[Any] = []
        self.tries = 0
        self.left = 0
        self.error: BaseException | None = None
        """Why there is no way."""
        self._act = act

    @contextlib.asynccontextmanager
    async def prepared(self) -> AsyncIterator[Act]:
        self.tries += 1
        if self.error is not None:
            raise self.error
        try:
            yield self._do
        finally:
            self.left += 1

    async def _do(self, alert: Alert) -> None:
        self.done.append(alert.reading[1]["n"])
        if self._act is not None:
            await self._act(alert)


@contextlib.asynccontextmanager
async def at_work(
    directory: Path, action: Acting, clock: HeldClock, **keys: Any
) -> AsyncIterator[tuple[EventLog, ActionRunner]]:
    with opened(directory) as events:
        async with runs(
            events, config(type="command", command=["/bin/true"], **keys), clock=clock
        ) as runner:
            runner._action = action
            yield events, runner


async def alert(events: EventLog, number: int, *, at_ms: int = NOW_MS) -> None:
    log = events.stream("alerts")
    await log.accepted(log.append((at_ms, {"rule": "too hot", "n": number})))


async def ended(runner: ActionRunner, **counts: int) -> None:
    await until(lambda: {name: runner.counts()[name] for name in counts} == counts)


@pytest.mark.parametrize(
    ("age_ms", "outcome"),
    [
        (0, "done"),
        (60_000, "done"),
        (60_001, "expired"),
        (-3_600_000, "done"),
        (NOW_MS - 1000, "expired"),
    ],
    ids=[
        "just now",
        "at the end of its time",
        "a moment after",
        "from the future: the clock was set back",
        "from 1970",
    ],
)
async def test_an_alert_is_acted_on_within_its_time(
    tmp_path: Path, age_ms: int, outcome: str
) -> None:
    action = Acting()
    async with at_work(tmp_path, action, HeldClock(NOW_MS), expire_s=60) as (events, runner):
        await alert(events, 1, at_ms=NOW_MS - age_ms)
        await ended(runner, **{outcome: 1})
    assert action.done == ([1] if outcome == "done" else [])


@pytest.mark.parametrize(
    "jump_s", [-3600.0, 0.0, 3600.0], ids=["set back an hour", "not set", "set forward an hour"]
)
async def test_while_there_is_no_way_an_alert_grows_old_whatever_is_done_to_the_clock(
    tmp_path: Path, jump_s: float
) -> None:
    clock, action = HeldClock(NOW_MS), Acting()
    action.error = OSError("nobody there")
    async with at_work(tmp_path, action, clock, expire_s=60) as (events, runner):
        await alert(events, 1)
        await until(lambda: clock.wakes)
        clock.jump(jump_s)
        for _ in range(8):
            clock.advance(RETRY_MAX_S)
            await until(lambda: clock.wakes or runner.counts()["expired"])
        await ended(runner, expired=1, done=0, failed=0)
        assert "an alert is" in runner.counts()["error"]
        action.error = None
        await alert(events, 2, at_ms=clock.now_ms())
        await ended(runner, expired=1, done=1)
    assert action.done == [2]


async def test_a_clock_that_is_set_back_between_two_alerts_holds_up_neither(tmp_path: Path) -> None:
    clock, action = HeldClock(NOW_MS), Acting()
    async with at_work(tmp_path, action, clock, expire_s=60, pause_s=10) as (events, runner):
        await alert(events, 1)
        await ended(runner, done=1)
        clock.jump(-3600)
        await alert(events, 2, at_ms=clock.now_ms())
        await until(lambda: clock.wakes == [10.0])
        clock.advance(10)
        await ended(runner, done=2)
    assert action.done == [1, 2]


@pytest.mark.parametrize("now_ms", [5_000, CLOCK_FLOOR_MS], ids=["in 1970", "in 2026"])
async def test_a_device_whose_clock_was_never_set_acts_on_what_it_sees(
    tmp_path: Path, now_ms: int
) -> None:
    action = Acting()
    async with at_work(tmp_path, action, HeldClock(now_ms), expire_s=60) as (events, runner):
        await alert(events, 1, at_ms=now_ms)
        await ended(runner, done=1)


async def test_between_two_is_the_pause_and_who_waits_too_long_in_it_is_too_old(
    tmp_path: Path,
) -> None:
    clock, action = HeldClock(NOW_MS), Acting()
    async with at_work(tmp_path, action, clock, expire_s=15, pause_s=10) as (events, runner):
        for number in (1, 2, 3):
            await alert(events, number)
        await until(lambda: clock.wakes == [10.0])
        assert action.done == [1]
        clock.advance(10)
        await until(lambda: clock.wakes == [20.0])
        clock.advance(10)
        await ended(runner, done=2, expired=1)
    assert action.done == [1, 2]


async def test_the_way_is_tried_later_each_time_and_left_after_the_deed(tmp_path: Path) -> None:
    clock, action = HeldClock(NOW_MS), Acting()
    action.error = OSError("nobody there")
    waits = []
    async with at_work(tmp_path, action, clock, expire_s=3600) as (events, runner):
        await alert(events, 1)
        for _ in range(7):
            await until(lambda: clock.wakes)
            waits.append(clock.wakes[0] - clock.monotonic_s())
            action.error = None if len(waits) == 7 else action.error
            clock.advance(waits[-1])
        await ended(runner, done=1)
        assert runner.counts()["error"] is None, "what was in the way is past"
    assert [
        low / 2 <= wait <= low for wait, low in zip(waits, (0.5, 1, 2, 4, 8, 15, 15), strict=True)
    ] == [True] * 7
    assert (action.tries, action.left) == (8, 1)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ActionFailed("exit code 1: no"), "ActionFailed: exit code 1: no"),
        (TimeoutError(), "not done within 10 s"),
        (ValueError("caf\udce9"), "ValueError: caf\\udce9"),
        (ExceptionGroup("both", [OSError()]), "ExceptionGroup: both (1 sub-exception)"),
    ],
    ids=["it says no", "it is too slow", "its error is not UTF-8", "several at once"],
)
async def test_what_went_wrong_is_counted_once_said_and_never_done_again(
    tmp_path: Path, error: Exception, says: str
) -> None:
    async def fails(_alert: Alert) -> None:
        raise error

    action = Acting(fails)
    async with at_work(tmp_path, action, HeldClock(NOW_MS)) as (events, runner):
        await alert(events, 1)
        await ended(runner, failed=1)
        assert runner.counts()["error"] == says
    again = Acting()
    async with at_work(tmp_path, again, HeldClock(NOW_MS)) as (events, runner):
        await alert(events, 2)
        await ended(runner, failed=1, done=1)
    assert (action.done, again.done, action.left) == ([1], [2], 1)


async def test_a_stop_amid_the_deed_is_unknown_after_the_next_start_and_not_done_again(
    tmp_path: Path,
) -> None:
    begun = asyncio.Event()

    async def hangs(_alert: Alert) -> None:
        begun.set()
        await asyncio.Event().wait()

    action = Acting(hangs)
    async with at_work(tmp_path, action, HeldClock(NOW_MS)) as (events, _runner):
        await alert(events, 1)
        await begun.wait()
    again = Acting()
    async with at_work(tmp_path, again, HeldClock(NOW_MS)) as (events, runner):
        await ended(runner, unknown=1, done=0)
        await alert(events, 2)
        await ended(runner, unknown=1, done=1)
    assert (action.done, action.left, again.done) == ([1], 1, [2])


# progress


@pytest.mark.parametrize(
    ("kept", "found"),
    [
        (b'{"begun": null, "counts": {"done": 3}}', Progress(None, {"done": 3})),
        (b'{"begun": 7, "counts": {}}', Progress(7, {})),
        (b'{"begun": 7}', Progress()),
        (b'{"counts": {}}', Progress()),
        (b'{"begun": 7, "counts": {"later": 1}}', Progress()),
        (b'{"begun": 7, "counts": {"done": "x"}}', Progress()),
        (b'{"begun": 7, "counts": {"done": null}}', Progress()),
        (b"\xff", Progress()),
        (b"7", Progress()),
    ],
)
def test_a_kept_state_is_read_or_nothing(kept: bytes, found: Progress) -> None:
    assert decode(kept) == found


@pytest.mark.parametrize("outcome", list(Outcome))
def test_an_end_ends_what_was_begun_and_counts_it(outcome: Outcome) -> None:
    state = Progress(7, {"done": 1}).ended(outcome, 3)
    assert state == Progress(
        None, {"done": 4} if outcome is Outcome.DONE else {"done": 1, outcome.value: 3}
    )
    assert Progress(None, {"done": 1}).begin(9) == Progress(9, {"done": 1})
