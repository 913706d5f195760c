"""Sketches and what dies while they are made: the child, the agent, at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.tables.consumers import Received
from edgewake.edge.sketches.config import SketchConfig
from edgewake.edge.sketches.sketching import PREFIX, Sketcher, Sketching
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.sketches.count_min import CountMin
from edgewake.protocol.sketches.sketch import STREAM, Numbers, SketchKind, item_text, parse
from tests.edge.actions.helpers import until
from tests.edge.helpers import opened
from tests.edge.sketches.sketch_crash import CONFIG, T0, WINDOWS
from tests.services import PATIENCE_S

LOCAL = frozenset({"noise", STREAM})


def life(directory: Path, place: str, nth: int, *more: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "tests.edge.sketches.sketch_crash",
        str(directory),
        place,
        str(nth),
        *more,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)


def lives(directory: Path, kills: list[tuple[str, int]], *more: str) -> list[Any]:
    for place, nth in kills:
        killed = life(directory, place, nth, *more)
        assert killed.returncode == -signal.SIGKILL, (place, nth, killed.stderr[-2000:])
    last = life(directory, "none", 0, *more)
    assert last.returncode == 0, last.stderr[-2000:]
    return orjson.loads(last.stdout)  # type: ignore[no-any-return]


@pytest.mark.services
def test_kills_at_named_places_leave_the_sketches_of_no_kill(tmp_path: Path) -> None:
    whole = lives(tmp_path / "whole", [])
    assert len(whole) == WINDOWS * 10
    kills = [("accepted", 5), ("inserted", 4), ("committed", 3), ("received", 2), ("inserted", 1)]
    assert lives(tmp_path / "killed", kills) == whole


@pytest.mark.long
@pytest.mark.services
def test_a_cursor_that_moves_ahead_of_what_is_open_loses(tmp_path: Path) -> None:
    """The control."""
    whole = sum(fields["readings"] for _, fields in lives(tmp_path / "whole", []))
    assert (
        sum(
            fields["readings"]
            for _, fields in lives(tmp_path / "killed", [("accepted", 6)], "--ahead")
        )
        < whole
    )


@asynccontextmanager
async def sketched(events: EventLog, config: SketchConfig = CONFIG) -> AsyncIterator[Sketcher]:
    sketcher = Sketcher(config, events, SystemClock(), random.Random(1))
    await sketcher.open()
    task = asyncio.create_task(sketcher.run())
    try:
        yield sketcher
    finally:
        task.cancel()
        await asyncio.wait({task})


async def killed(sketcher: Sketcher) -> None:
    """The child, which is there or comes soon."""
    await until(lambda: sketcher.pid is not None)
    # It is dead already and the agent has not seen it.
    with contextlib.suppress(ProcessLookupError):
        os.kill(sketcher.pid or 0, signal.SIGKILL)


async def put(events: EventLog, some: list[Reading]) -> None:
    noise = events.stream("noise")
    await noise.accepted(noise.append_all(some))


async def test_sketches_that_are_no_longer_configured_hold_nothing_back(tmp_path: Path) -> None:
    with opened(tmp_path) as events:
        sketches = Sketching([CONFIG], events, SystemClock(), random.Random(1))
        await sketches.open()
        assert events.consumers() == {PREFIX + "noise"}
        await Sketching([], events, SystemClock(), random.Random(1)).forget_others()
        assert events.consumers() == frozenset()


GRACE_MS = 500


def disordered() -> list[Reading]:
    """Readings that come up to the grace and more out of order, some without the field, some with a
    text in it; the last closes all.
    """
    rng = random.Random(11)
    found = []
    for n in range(400):
        value: dict[str, Any] = {
            "db": rng.choice([rng.gauss(60, 9), rng.gauss(60, 9), "loud", None]),
            "street": rng.choice("abc"),
        }
        found.append((T0 + n * 20 - rng.choice([0, 0, 200, 499, 500, 1200, 1700]), value))
    return [*found, (T0 + 60_000, {"other": 1})]


def account(given: list[Reading]) -> tuple[dict[tuple[int, str, str], list[Any]], int]:
    """What the docs say: window start, field, kind → its values in their order; and how many were
    late.
    """
    head = closed_through = 0
    inside: dict[tuple[int, str, str], list[Any]] = defaultdict(list)
    late = 0
    for t, fields in given:
        start = t // 1000 * 1000
        if start < closed_through:
            late += 1
            continue
        for field in ("db", "street"):
            value = fields.get(field)
            if value is not None:
                inside[start, field, "count_min"].append(value)
            if isinstance(value, float):
                inside[start, field, "numbers"].append(value)
        head = max(head, t)
        closed_through = max(closed_through, (head - GRACE_MS) // 1000 * 1000)
    return inside, late


async def test_a_windows_figures_are_those_of_its_readings_in_whatever_order_they_come(
    tmp_path: Path,
) -> None:
    config = SketchConfig.checked(
        {
            "stream": "noise",
            "fields": ["db", "street"],
            "kinds": ["numbers", "count_min"],
            "window_s": 1,
            "grace_s": GRACE_MS / 1000,
        }
    )
    expected, late = account(disordered())
    found = []
    with opened(tmp_path, local=LOCAL) as events:
        check = await events.consumer("check", [STREAM])
        async with sketched(events, config) as sketcher:
            for begin in range(0, 401, 90):
                await put(events, disordered()[begin : begin + 90])
            async with asyncio.timeout(PATIENCE_S):
                while len(found) < len(expected):
                    found += [
                        parse(one)
                        for item in (await check.read()).items
                        if isinstance(item, Received)
                        for _, one in item.readings
                    ]
            assert sketcher.counts()["late"] == late > 0
    assert {(one.start_ms, one.field, one.kind.value): one.readings for one in found} == {
        of: len(some) for of, some in expected.items()
    }
    for one in found:
        some = expected[one.start_ms, one.field, one.kind.value]
        if one.kind is SketchKind.NUMBERS:
            figures = Numbers.decode(one.data)
            assert (figures.count, figures.min, figures.max) == (len(some), min(some), max(some))
            assert figures.sum == pytest.approx(math.fsum(some))
        else:
            assert all(
                CountMin.decode(one.data).count(item_text(value)) >= some.count(value)
                for value in some
            )
