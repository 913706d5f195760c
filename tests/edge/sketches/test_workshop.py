"""The child that makes sketches: replaced when it dies, given up when it hangs."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

import pytest

from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.tables.consumers import Received
from edgewake.edge.sketches import sketching, workshop
from edgewake.edge.sketches.config import SketchConfig
from edgewake.edge.sketches.sketching import Sketcher
from edgewake.edge.sketches.workshop import MakerGone
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import LocalError
from edgewake.protocol.sketches.sketch import STREAM, SketchKind
from tests.edge.actions.helpers import until
from tests.edge.helpers import opened
from tests.edge.sketches.sketch_crash import CONFIG, WINDOWS, readings
from tests.edge.sketches.test_sketching import LOCAL, killed, put, sketched
from tests.services import PATIENCE_S, freeze


async def made(events: EventLog, windows: int) -> list[Reading]:
    """The sketches of so many windows, from the first one on."""
    consumer, found = await events.consumer("check", [STREAM]), list[Reading]()
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < 10 * windows:
            found += [
                one
                for item in (await consumer.read()).items
                if isinstance(item, Received)
                for one in item.readings
            ]
    return found


async def test_a_child_that_is_killed_is_replaced_and_nothing_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sketching, "RESTART_MIN_S", 0.01)
    found = []
    for name, kills in (("whole", False), ("killed", True)):
        with opened(tmp_path / name, local=LOCAL) as events:
            await events.consumer("check", [STREAM])
            async with sketched(events) as sketcher:
                for begin in range(0, len(readings()), 50):
                    await put(events, readings()[begin : begin + 50])
                    if kills and begin % 150 == 0:
                        await killed(sketcher)
                found.append(await made(events, WINDOWS))
                counts = sketcher.counts()
                assert (counts["counted"], counts["late"], counts["missed"]) == (
                    len(readings()),
                    0,
                    0,
                )
                assert (counts["restarts"] > 0) is kills
    assert found[0] == found[1]


async def test_a_child_that_hangs_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, local=LOCAL) as events:
        await events.consumer("check", [STREAM])
        async with sketched(events) as sketcher:
            await put(events, readings()[:150])
            await made(events, 1)
            assert sketcher.pid is not None
            # Not before: on a busy machine a child takes longer than that to start.
            monkeypatch.setattr(workshop, "PATIENCE_S", 1.0)
            freeze(sketcher.pid)
            await put(events, readings()[150:250])
            await until(lambda: sketcher.counts()["restarts"] > 0)
            monkeypatch.setattr(workshop, "PATIENCE_S", 60.0)
            await until(lambda: sketcher.counts()["made"] == 20)


async def test_a_child_that_cannot_start_or_answers_nonsense_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workshop, "MODULE", "no.such.module")
    async with workshop.workshop([SketchKind.HLL]) as maker:
        with pytest.raises(MakerGone):
            await maker.over(1)
    monkeypatch.setattr(workshop, "MODULE", "this")
    async with workshop.workshop([SketchKind.HLL]) as maker:
        with pytest.raises(MakerGone):
            await maker.over(1)
    monkeypatch.setattr(sys, "executable", "/not-there")
    with pytest.raises(MakerGone, match="cannot be started"):
        async with workshop.workshop([SketchKind.HLL]):
            raise AssertionError("it is not there")


def test_without_the_library_the_agent_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sketching, "find_spec", lambda _name: None)
    with opened(tmp_path) as events, pytest.raises(LocalError, match=r"edgewake\[edge-sketches\]"):
        Sketcher(CONFIG, events, SystemClock(), random.Random(1))
    own = SketchConfig.checked(
        {"stream": "noise", "fields": ["db"], "kinds": ["numbers", "count_min"]}
    )
    with opened(tmp_path) as events:
        Sketcher(own, events, SystemClock(), random.Random(1))  # they need none
