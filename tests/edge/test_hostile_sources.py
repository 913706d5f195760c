"""A source of somebody else's may do anything: it harms itself, is said, and is started again."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from edgewake.edge.intake.intake import Intake, OneWaySink
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.supervisor import RESTART_MAX_S, RESTART_MIN_S, SourceState, Supervisor
from edgewake.protocol.backoff import SETTLED_S, Backoff
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.errors import Unavailable
from tests.edge.helpers import lose


class Mute(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError("no words")


class NotEvenThat(Exception):
    """Says what is no text."""

    def __str__(self) -> str:
        return 5  # type: ignore[return-value]


def exits() -> None:
    sys.exit(3)


def raises(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


class Acting:
    """Does something odd in each of its first lives, then brings a reading and ends."""

    policy = Policy.BLOCK

    def __init__(self, clock: FakeClock, *acts: Callable[[], Any], lasts_s: float = 0.0) -> None:
        self._clock, self._acts, self._lasts_s = clock, list(acts), lasts_s

    async def run(self, intake: Intake) -> None:
        if self._acts:
            self._clock.advance(self._lasts_s)
            self._acts.pop(0)()
        await intake.put([(1, {"n": 1})])


def supervised(
    *acts: Callable[[], Any],
    clock: FakeClock | None = None,
    lasts_s: float = 0.0,
    policy: Policy | None = None,
) -> tuple[Supervisor, list[Reading], Intake]:
    taken: list[Reading] = []
    clock = clock or FakeClock()
    intake = Intake("source", OneWaySink(taken.extend, lose), Policy.BLOCK, clock)
    backoff = Backoff(random.Random(1), first_s=RESTART_MIN_S, max_s=RESTART_MAX_S)
    return (
        Supervisor(
            "source",
            lambda: Acting(clock, *acts, lasts_s=lasts_s),
            intake,
            clock,
            backoff,
            policy=policy,
        ),
        taken,
        intake,
    )


@pytest.mark.parametrize(
    ("act", "says"),
    [
        pytest.param(
            raises(OSError("the stick is gone")), "OSError: the stick is gone", id="it fails"
        ),
        pytest.param(
            raises(Mute()), "Mute: it cannot be shown", id="its error cannot say what it is"
        ),
        pytest.param(
            raises(NotEvenThat()),
            "NotEvenThat: it cannot be shown",
            id="its error says what is not a text",
        ),
        pytest.param(
            raises(ValueError("caf\udce9")), "ValueError: caf\\udce9", id="its error is not UTF-8"
        ),
        pytest.param(
            exits, "RuntimeError: it asked the program to exit: 3", id="it asks the program to exit"
        ),
        pytest.param(
            raises(asyncio.CancelledError()),
            "RuntimeError: it cancelled itself",
            id="it cancels itself",
        ),
        pytest.param(
            raises(StopIteration()),
            "RuntimeError: coroutine raised StopIteration",
            id="it stops an iteration",
        ),
        pytest.param(
            raises(ExceptionGroup("two", [OSError(), ValueError()])),
            "ExceptionGroup: two (2 sub-exceptions)",
            id="two at once",
        ),
        pytest.param(
            raises(RecursionError("too deep")),
            "RecursionError: too deep",
            id="it goes round in circles",
        ),
        pytest.param(raises(MemoryError()), "MemoryError: ", id="it wants too much"),
    ],
)
async def test_whatever_it_does_it_is_said_and_started_again(
    act: Callable[[], Any], says: str
) -> None:
    one, taken, _ = supervised(act)
    async with asyncio.timeout(60):
        await one.run()
    assert (one.state, one.failures, one.error, taken) == (
        SourceState.ENDED,
        1,
        says,
        [(1, {"n": 1})],
    )
    assert orjson.loads(orjson.dumps(one.counts()))["error"] == says, "the status can be written"


async def test_one_that_exits_while_it_is_made_is_made_again() -> None:
    clock, made = FakeClock(), []

    def make() -> Acting:
        made.append(1)
        if len(made) == 1:
            sys.exit("no licence")
        return Acting(clock)

    intake = Intake("source", OneWaySink(lambda _: None, lose), Policy.BLOCK, clock)
    one = Supervisor("source", make, intake, clock, Backoff(random.Random(1), first_s=1, max_s=60))
    await one.run()
    assert (one.state, one.error, len(made)) == (SourceState.ENDED, "SystemExit: no licence", 2)


async def test_a_stop_is_no_failure_even_for_one_that_turns_it_into_one() -> None:
    class Sulking:
        policy = Policy.BLOCK

        async def run(self, _intake: Intake) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                raise OSError("not now")

    clock = FakeClock()
    intake = Intake("source", OneWaySink(lambda _: None, lose), Policy.BLOCK, clock)
    backoff = Backoff(random.Random(1), first_s=1, max_s=60)
    one = Supervisor("source", Sulking, intake, clock, backoff)
    running = asyncio.create_task(one.run())
    for _ in range(5):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running})
    assert (running.cancelled(), one.failures) == (True, 0)


@pytest.mark.parametrize(
    ("lasts_s", "waits_grow"),
    [(SETTLED_S - 0.1, True), (SETTLED_S, False)],
    ids=["which fails too soon", "which lasted"],
)
async def test_each_life_that_lasted_is_forgiven_what_was_before(
    lasts_s: float, waits_grow: bool
) -> None:
    clock = FakeClock()
    failing = [raises(OSError("again"))] * 8
    one, _, _ = supervised(*failing, clock=clock, lasts_s=lasts_s)
    await one.run()
    waited_s = clock.monotonic_s() - 8 * lasts_s
    assert (waited_s > 8 * RESTART_MIN_S) is waits_grow


@pytest.mark.parametrize(
    ("asked_s", "least_s", "most_s"),
    [(0.0, 0.5, 1.0), (0.7, 0.7, 1.0), (30.0, 30.0, 30.0)],
    ids=[
        "nothing said: the back-off",
        "less than the back-off at most",
        "longer than the back-off",
    ],
)
async def test_the_other_side_may_ask_for_a_longer_wait_and_for_no_shorter_one(
    asked_s: float, least_s: float, most_s: float
) -> None:
    clock = FakeClock()
    one, _, _ = supervised(raises(Unavailable("503", retry_after_s=asked_s)), clock=clock)
    await one.run()
    assert least_s <= clock.monotonic_s() <= most_s


@pytest.mark.parametrize(
    ("said", "used"),
    [(None, Policy.BLOCK), (Policy.DROP_NEWEST, Policy.DROP_NEWEST)],
    ids=["the source's own", "as the configuration says"],
)
async def test_the_policy_is_the_configurations_and_else_the_sources_own(
    said: Policy | None, used: Policy
) -> None:
    one, _, intake = supervised(policy=said)
    intake.policy = Policy.DROP_NEWEST if used is Policy.BLOCK else Policy.BLOCK
    await one.run()
    assert intake.policy is used


async def test_while_it_waits_for_its_next_life_it_is_said_to_wait() -> None:
    seen: list[dict[str, Any]] = []

    class Looking(FakeClock):
        async def sleep(self, seconds: float) -> None:
            seen.append(one.counts())
            await super().sleep(seconds)

    one, _, _ = supervised(raises(OSError("x")), clock=Looking())
    assert one.counts()["state"] == "running"
    await one.run()
    assert [(counts["state"], counts["failures"], counts["error"]) for counts in seen] == [
        ("waiting", 1, "OSError: x")
    ]
    assert (one.counts()["state"], one.counts()["taken"]) == ("ended", 1)


async def test_in_its_next_life_it_is_said_to_run_and_what_it_failed_of_is_still_known() -> None:
    seen: list[dict[str, Any]] = []
    one, _, _ = supervised(raises(OSError("x")), lambda: seen.append(one.counts()))
    await one.run()
    assert [(counts["state"], counts["failures"], counts["error"]) for counts in seen] == [
        ("running", 1, "OSError: x")
    ]
