"""Whatever a check accepts starts, and nobody waits for another one's plan."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from edgewake.cloud.analysis.lanes.lane import Lane
from edgewake.cloud.analysis.supervision.start_record import DEATHS_MAX, StartRecord
from edgewake.cloud.analysis.supervision.starts import LARGE
from edgewake.cloud.queries.plan_cost import PLAN_MAX, plan_cost
from edgewake.cloud.queries.query_file import parse
from edgewake.protocol import topics
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.ops.query import Registration
from tests.analysis.support import T0, Analysis, Feed, declare, register, results, sql, unique
from tests.analysis.test_process import progress
from tests.analysis.test_run import _no_query_stays, running
from tests.services import wait_until

__all__ = ["_no_query_stays"]  # a fixture that each test uses

NewFeed = Callable[[Mapping[str, FieldType]], Feed]
FIELDS = {f"x{i}": FieldType.NUMBER for i in range(20)}
MINUTE = "window(event_time, '1 minute'), device"


def total(terms: int, first: int = 0) -> str:
    return " + ".join(f"x{(first + i) % 20} * {i + 1}" for i in range(terms))


def nested(function: str, depth: int, of: str = "x0") -> str:
    for i in range(depth):
        of = function.replace("?", of).replace("#", str(i + 1))
    return of


SHAPES = {
    "a sum of a dozen terms": f"SELECT device, {total(12)} AS y FROM m",
    "a sum as deep as may be": f"SELECT device, avg({total(14)}) AS y FROM m GROUP BY {MINUTE}",
    "a chain of nullif": f"SELECT device, {nested('nullif(?, -#)', 8)} AS y FROM m",
    "texts of numbers": (
        f"SELECT device, {nested('cast(cast(? AS string) AS double)', 2)} AS y FROM m"
    ),
    "CASE in CASE": (
        f"SELECT device, {nested('CASE ? WHEN -1 THEN 2 WHEN -2 THEN 3 ELSE # END', 6)} AS y FROM m"
    ),
    "whole numbers": f"SELECT device, {nested('(? div 1)', 14)} AS y FROM m",
    "roots": f"SELECT device, {nested('sqrt(? + #)', 12)} AS y FROM m WHERE "
    f"{nested('sqrt(? + #)', 12)} > 0",
    "many windows": (
        "SELECT device, sum(x0) AS y FROM m GROUP BY window(event_time, '2 minutes', '1 second'), "
        "device"
    ),
    "many columns": "SELECT device, "
    + ", ".join(f"avg({total(3, i)}) AS y{i}" for i in range(30))
    + f" FROM m GROUP BY {MINUTE}",
    "HAVING": f"SELECT device, sum(x0) AS y FROM m GROUP BY {MINUTE} HAVING "
    f"{nested('nullif(?, -#)', 8, 'y')} > 0",
}


@pytest.fixture
def wide(new_feed: NewFeed) -> Feed:
    return new_feed(FIELDS)


@pytest.fixture
def small(new_feed: NewFeed) -> Feed:
    return new_feed({"speed": FieldType.NUMBER})


def fill(*feeds: Feed) -> None:
    for feed in feeds:
        values: dict[str, Any] = {name: [1.0, 2.0] for name in feed.types}
        feed.send([T0, T0 + 1000], device="a", **values)
        feed.flush()


def is_told(feed: Feed, query: str) -> bool:
    return bool(results(feed.config, query))


@pytest.mark.long
def test_every_shape_at_once_starts_and_another_stream_is_told_as_ever(
    analysis: Analysis, wide: Feed, small: Feed
) -> None:
    """Each of the first ones was a plan of millions of parts, and stopped every query of the
    system.
    """
    names = {shape: unique("shape") for shape in SHAPES}
    texts = {
        names[shape]: f"-- name: {names[shape]}\n{text.replace('FROM m', f'FROM {wide.name}')}"
        for shape, text in SHAPES.items()
    }
    assert max(plan_cost(parse(text)) for text in texts.values()) > PLAN_MAX / 5, "some are large"
    other = unique("other")
    declare(wide)
    declare(small)
    with running(analysis):
        for name, text in texts.items():
            register(wide, text, name=name)
        register(small, sql(small.name, "device, count(*) AS n", MINUTE, name=other), name=other)
        fill(wide, small)
        wait_until(lambda: is_told(small, other), "the other stream's query is told")
        for name in texts:
            wait_until(lambda name=name: is_told(wide, name), f"{texts[name]} is told")  # type: ignore[misc]
    assert results(wide.config, names["a sum of a dozen terms"])[0]["y"] == 78


def test_a_query_that_ended_the_process_twice_stays_out_and_is_said_and_the_others_run(
    analysis: Analysis, small: Feed
) -> None:
    """As the file of the starts says it of two processes that were killed while they planned it."""
    bad, good = (
        Registration(name=unique(name), text="", registered_at=at)
        for at, name in ((2, "bad"), (1, "good"))
    )
    record = StartRecord(analysis.config.kept_dir / "starts.json")
    for _ in range(DEATHS_MAX):
        record = StartRecord(record.path)
        record.begun([good.label, bad.label])
    declare(small)
    for one in (bad, good):
        text = sql(small.name, "device, count(*) AS n", MINUTE, name=one.name)
        small.producer.produce(
            topics.QUERIES,
            one.model_copy(update={"text": text}).model_dump_json().encode(),
            one.name,
        )
    with running(analysis):
        fill(small)
        wait_until(lambda: is_told(small, good.name), "the other one is told")
        wait_until(
            lambda: progress(small.config, bad.name).get("state") == "failed",
            "it is said of the one that stays out",
        )
    said = progress(small.config, bad.name)
    assert "kept the analysis from starting" in said["detail"]
    assert said["quarantined"]


@pytest.mark.long
def test_a_plan_that_takes_long_holds_up_no_other_lane(
    analysis: Analysis, wide: Feed, small: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, quick, ended = unique("slow"), unique("quick"), threading.Event()
    planned: Callable[[Lane], Any] = Lane._planned

    def waits(lane: Lane) -> Any:
        if lane.job.stream == wide.name:
            ended.wait()
        return planned(lane)

    monkeypatch.setattr(Lane, "_planned", waits)
    text = f"-- name: {slow}\n{SHAPES['many windows'].replace('FROM m', f'FROM {wide.name}')}"
    assert plan_cost(parse(text)) > LARGE
    declare(wide)
    declare(small)
    try:
        with running(analysis):
            register(wide, text, name=slow)
            register(
                small, sql(small.name, "device, count(*) AS n", MINUTE, name=quick), name=quick
            )
            fill(wide, small)
            wait_until(lambda: is_told(small, quick), "another lane is told")
            assert not is_told(wide, slow), "control: its plan is still being made"
            ended.set()
            wait_until(lambda: is_told(wide, slow), "then it is told, too")
    finally:
        ended.set()
