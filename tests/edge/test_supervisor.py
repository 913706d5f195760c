"""A source harms only itself."""

from __future__ import annotations

import asyncio
import random

import pytest

from edgewake.edge.intake.intake import Intake, OneWaySink
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.sources.source import Source
from edgewake.edge.supervisor import RESTART_MAX_S, RESTART_MIN_S, SourceState, Supervisor
from edgewake.protocol.backoff import Backoff
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.errors import Unavailable
from tests.edge.helpers import lose
from tests.services import PATIENCE_S


class Asking:
    """Is asked to wait an hour, then ends."""

    policy = Policy.DROP_NEWEST
    was_asked = False

    async def run(self, intake: Intake) -> None:
        if not self.was_asked:
            self.was_asked = True
            raise Unavailable("HTTP 503", retry_after_s=3600)


class Failing:
    """Fails so many times, then brings one reading and ends."""

    policy = Policy.DROP_NEWEST

    def __init__(self, failures: int) -> None:
        self._left = failures

    async def run(self, intake: Intake) -> None:
        self._left -= 1
        if self._left >= 0:
            raise OSError("the stick is gone")
        await intake.put([(1, {"n": 1})])


def supervised(make: Source | type[Source], taken: list[Reading], clock: FakeClock) -> Supervisor:
    intake = Intake("source", OneWaySink(taken.extend, lose), Policy.BLOCK, clock)
    return Supervisor(
        "source",
        lambda: make,
        intake,
        clock,
        Backoff(random.Random(1), first_s=RESTART_MIN_S, max_s=RESTART_MAX_S),
    )  # type: ignore[arg-type, return-value]


async def test_a_source_that_fails_is_started_again_later_each_time_and_goes_on_when_it_can() -> (
    None
):
    taken: list[Reading] = []
    clock = FakeClock()
    one = supervised(Failing(8), taken, clock)
    await one.run()
    assert taken == [(1, {"n": 1})]
    assert (one.state, one.failures, one.error) == (
        SourceState.ENDED,
        8,
        "OSError: the stick is gone",
    )
    assert 60 < clock.monotonic_s() < 8 * RESTART_MAX_S, "1 + 2 + 4 + … s, jittered"


async def test_a_source_that_is_asked_to_wait_is_started_again_no_earlier() -> None:
    clock = FakeClock()
    await supervised(Asking(), [], clock).run()
    assert 3600 <= clock.monotonic_s() < 3600 + RESTART_MAX_S


async def test_a_source_that_cannot_be_made_is_asked_again() -> None:
    taken: list[Reading] = []
    clock = FakeClock()
    asked = 0

    def make() -> Source:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise ImportError("no such driver")
        return Failing(0)

    intake = Intake("source", OneWaySink(taken.extend, lose), Policy.BLOCK, clock)
    one = Supervisor(
        "source",
        make,
        intake,
        clock,
        Backoff(random.Random(1), first_s=RESTART_MIN_S, max_s=RESTART_MAX_S),
    )
    await one.run()
    assert (asked, len(taken), one.failures) == (3, 1, 2)
    assert intake.policy is Policy.DROP_NEWEST
    assert one.counts()["state"] == "ended"


async def test_a_stop_ends_a_source_that_waits_and_one_that_runs() -> None:
    class Waiting:
        policy = Policy.BLOCK

        async def run(self, _intake: Intake) -> None:
            await asyncio.Event().wait()

    one = supervised(Waiting(), [], FakeClock())
    task = asyncio.create_task(one.run())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert one.failures == 0


class HardOfHearing:
    """Loses the first time that it is cancelled, as a library may."""

    policy = Policy.BLOCK
    lost = 0

    async def run(self, intake: Intake) -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self.lost += 1
                if self.lost > 1:
                    raise


async def test_a_source_that_loses_a_cancellation_is_cancelled_again() -> None:
    source = HardOfHearing()
    running = asyncio.create_task(supervised(source, [], FakeClock()).run())
    await asyncio.sleep(0.05)
    running.cancel()
    done, _ = await asyncio.wait({running}, timeout=PATIENCE_S)
    assert (done, running.cancelled(), source.lost) == ({running}, True, 2)
