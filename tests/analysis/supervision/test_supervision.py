"""What becomes of lanes that start, fail and are held, decided without Spark and Kafka: a lane's
own start and end are the test's.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.jobs.job import Job
from edgewake.cloud.analysis.jobs.kinds import jobs_of
from edgewake.cloud.analysis.lanes.failures import Failure, Fault
from edgewake.cloud.analysis.lanes.lane import Lane
from edgewake.cloud.analysis.lanes.lane_time import Upstream
from edgewake.cloud.analysis.results.emitted_rows import EmittedRows
from edgewake.cloud.analysis.supervision import blame
from edgewake.cloud.analysis.supervision import supervision as module
from edgewake.cloud.analysis.supervision.supervision import (
    AWAY_S,
    Around,
    LaneKey,
    Supervision,
)
from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.errors import LocalError, Unavailable
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from tests.analysis.support import registered, sql

STREAM = Stream(name="s", fields={"speed": FieldInfo(type=FieldType.NUMBER)})
TYPES = {"s": {"speed": FieldType.NUMBER}}


class OwnLane(Lane):
    """A lane whose start and end the test says, in place of Spark."""

    made: ClassVar[list[OwnLane]] = []
    refusal: ClassVar[Exception | None] = None

    def plan(self, beside: Executor) -> None:
        self.stops, self.is_started, self.batches = 0, False, 0
        self.ended: Failure | None = None
        OwnLane.made.append(self)

    @property
    def is_planned(self) -> bool:
        return True

    def start(self) -> None:
        if OwnLane.refusal is not None:
            raise OwnLane.refusal
        self.is_started = True

    @property
    def is_running(self) -> bool:
        return self.batches > 0

    @property
    def finished(self) -> int:
        return self.batches

    def failure(self) -> Failure | None:
        return self.ended

    def say_running(self) -> None:
        """Nobody hears it."""

    def advance_in_silence(self) -> None:
        """There is nothing to make final."""

    def stop(self) -> None:
        self.stops += 1


class World:
    """A supervision and what it calls."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.retried, self.leads = FakeClock(), list[str](), True
        config = AnalysisConfig(
            kafka=KafkaConfig(bootstrap="127.0.0.1:1"), data_dir=str(folder), trigger_ms=100
        )
        around = Around(
            types=lambda: TYPES,
            beat=lambda: None,
            leads=lambda: self.leads,
            check_spark=lambda: None,
            on_start=lambda job: None,
            on_retry=lambda job, why: self.retried.append(why),
        )
        session: Any = None
        self.lanes = Supervision(session, config, self.clock, random.Random(1), Upstream(), around)
        self.stop = threading.Event()

    def turn(self, jobs: dict[LaneKey, Job]) -> None:
        """One turn of the main loop."""
        self.lanes.look_after()
        self.lanes.reconcile(jobs, self.stop)
        self.lanes.start_planned(self.stop)

    def fails(self, jobs: dict[LaneKey, Job], failure: Failure) -> float:
        """The lane that runs fails; the seconds until it is tried again."""
        (lane,) = self.lanes.running().values()
        assert isinstance(lane, OwnLane)
        lane.ended = failure
        began_s = self.clock.monotonic_s()
        self.turn(jobs)
        while not self.lanes.running():
            assert self.clock.monotonic_s() - began_s < 60, "it is never tried again"
            self.clock.advance(0.05)
            self.turn(jobs)
        return self.clock.monotonic_s() - began_s


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(module, "Lane", OwnLane)
    monkeypatch.setattr(topic_admin, "ensure_topics", lambda *_: None)
    OwnLane.made, OwnLane.refusal = [], None
    world = World(tmp_path)
    yield world
    world.lanes.close_starts()


def jobs(*names: str) -> dict[LaneKey, Job]:
    """One lane with queries of these names."""
    window = "window(event_time, '1 minute'), device"
    files = [sql("s", "device, count(*) AS n", window, name=name) for name in names]
    found = registered(*files, streams=[STREAM])
    return dict(jobs_of(found, TYPES))


def away(cause: str = "Kafka is away") -> Failure:
    return Failure(Fault.SURROUNDINGS, cause)


def suspect(to: int, cause: str = "division") -> Failure:
    return Failure(Fault.SUSPECT, cause, reached={"ew.s.s": {0: to}}, batch=1)


def test_a_lane_is_planned_and_started_replaced_where_its_queries_change_and_stopped_with_them(
    world: World,
) -> None:
    one, two = jobs("a"), jobs("a", "b")
    world.turn(one)
    world.turn(one)
    (first,) = OwnLane.made
    assert (first.is_started, first.stops) == (True, 0)
    world.turn(two)
    second = OwnLane.made[-1]
    assert [lane.job for lane in world.lanes.running().values()] == list(two.values())
    assert (first.stops, second.is_started, len(OwnLane.made)) == (1, True, 2)
    world.turn({})
    assert (world.lanes.running(), second.stops) == ({}, 1)


def test_a_failure_is_waited_for_longer_each_time_and_never_long_where_others_are_away(
    world: World,
) -> None:
    wanted = jobs("a")
    world.turn(wanted)
    waits = [world.fails(wanted, away()) for _ in range(8)]
    assert waits[0] <= 0.6
    assert max(waits) <= AWAY_S + 0.1
    assert max(waits[4:]) > 1
    assert world.retried == ["Kafka is away"] * 8


def test_a_lane_that_finished_a_batch_meanwhile_is_soon_tried_again(world: World) -> None:
    wanted = jobs("a")
    world.turn(wanted)
    for _ in range(6):
        world.fails(wanted, away())
    OwnLane.made[-1].batches = 1
    assert world.fails(wanted, away()) <= 0.6
    (place,) = world.lanes.places.values()
    assert place.trouble.failures == 1


def test_a_start_that_fails_is_tried_again_and_its_lane_is_closed(world: World) -> None:
    wanted = jobs("a")
    OwnLane.refusal = Unavailable("no Kafka")
    world.turn(wanted)
    assert (world.lanes.running(), OwnLane.made[0].stops) == ({}, 1)
    assert not world.lanes.is_due()
    OwnLane.refusal = None
    world.clock.advance(AWAY_S)
    assert world.lanes.is_due()
    world.turn(wanted)
    assert len(world.lanes.running()) == 1


def test_a_query_that_fails_twice_for_the_same_readings_is_taken_out_and_the_rest_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = jobs("a", "b")
    (job,) = both.values()
    guilty = job.queries[1].label
    searched: list[Failure] = []

    def failing(*arguments: Any) -> dict[str, str]:
        searched.append(arguments[5])
        return {guilty: "it divides"}

    monkeypatch.setattr(blame, "failing", failing)
    world.turn(both)
    world.fails(both, suspect(5))
    world.fails(both, suspect(7))
    assert searched == [], "other readings: nobody is blamed yet"
    before = world.lanes.changes
    assert world.fails(both, suspect(7)) < 0.1, "without it, it may start at once"
    assert len(searched) == 1
    assert world.lanes.failed == {guilty: "it divides"}
    assert world.lanes.changes > before, "another job is wanted"
    (place,) = world.lanes.places.values()
    assert place.trouble.failures == 0


def test_a_state_that_cannot_be_loaded_twice_is_built_again(world: World) -> None:
    wanted = jobs("a")
    world.turn(wanted)
    checkpoint = OwnLane.made[0].checkpoint
    checkpoint.mkdir(parents=True)
    lost = Failure(Fault.STATE_LOST, "a file is torn")
    world.fails(wanted, lost)
    assert checkpoint.exists(), "perhaps it was a moment"
    world.fails(wanted, lost)
    assert not checkpoint.exists()


def test_who_is_fenced_ends(world: World) -> None:
    wanted = jobs("a")
    world.turn(wanted)
    OwnLane.made[0].ended = Failure(Fault.FENCED, "a newer producer")
    with pytest.raises(LocalError, match="another analysis computes 's'"):
        world.turn(wanted)
    assert OwnLane.made[0].stops == 1


def test_a_lane_that_is_held_stays_stopped_until_it_is_released(world: World) -> None:
    wanted = jobs("a")
    world.turn(wanted)
    (key,) = wanted
    world.lanes.places[key].emitted_rows["a@1"] = EmittedRows()
    world.lanes.hold(key)
    assert world.lanes.places[key].emitted_rows == {}, "its rows may be emitted again"
    world.clock.advance(60)
    world.turn(wanted)
    assert (world.lanes.running(), world.lanes.is_due(), len(OwnLane.made)) == ({}, False, 1)
    world.lanes.release()
    assert world.lanes.is_due()
    world.turn(wanted)
    assert len(world.lanes.running()) == 1


@pytest.mark.parametrize("what", ["held", "not leading", "stopping", "not wanted"])
def test_a_plan_that_is_made_too_late_is_abandoned(world: World, what: str) -> None:
    wanted = jobs("a")
    world.lanes.reconcile(wanted, world.stop)
    (key,) = wanted
    changes: dict[str, Callable[[], object]] = {
        "held": lambda: world.lanes.hold(key),
        "not leading": lambda: setattr(world, "leads", False),
        "stopping": world.stop.set,
        "not wanted": lambda: world.lanes.reconcile({}, world.stop),
    }
    changes[what]()
    world.lanes.start_planned(world.stop)
    (lane,) = OwnLane.made
    assert (world.lanes.running(), lane.is_started) == ({}, False)
    if what != "not wanted":  # there a thread stops it
        assert lane.stops == 1


def test_queries_whose_results_cannot_be_made_are_said_and_change_what_is_wanted(
    world: World,
) -> None:
    wanted = jobs("a", "b")
    world.turn(wanted)
    assert not world.lanes.look_after()
    (job,) = wanted.values()
    broken = {job.queries[0].label: "its results cannot be made"}
    OwnLane.made[0].broken |= broken
    assert world.lanes.look_after()
    assert world.lanes.failed == broken
    rest = jobs("b")
    world.turn({key: replace(one, queries=job.queries[1:]) for key, one in rest.items()})
    (lane,) = world.lanes.running().values()
    assert [one.label for one in lane.job.queries] == [job.queries[1].label]
