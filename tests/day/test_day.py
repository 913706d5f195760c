"""A day in short: three hundred mixed devices, each fault once, and nothing is lost, doubled or
wrongly timed; and a morning of one or two devices of each kind and five faults. `make day` lives
the day in ten minutes.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.day.day import Day, Size
from tests.day.oracle import Verdict

pytestmark = pytest.mark.services
SECONDS = 26.0
EVERY_S = 3.0
"""Between two numbers of a device."""
FAULTS = 14


MORNING_S = 6.0
FEW = Size(
    plain=1, tasmota=2, zigbee=2, nodes=1, modbus=2, opcua=2, can=2, json=2, lines=2, program=1,
    eager=1, mapped=2, gates=1, thingsboard=2, door_json=2, door_lines=2,
)  # fmt: skip
MISHAPS = frozenset(
    {
        "bridge killed",
        "devices send more than their share",
        "clocks jump back",
        "firmware writes text",
        "broker killed",
    }
)


async def test_of_a_morning_nothing_is_lost_twice_or_wrongly_timed(tmp_path: Path) -> None:
    async with Day(tmp_path, every_s=1.0, size=FEW, faults=MISHAPS, tell=teller()) as day:
        await day.live(MORNING_S)
        await is_good(day)
        assert set(day.faults) == MISHAPS


@pytest.mark.long
async def test_of_a_day_nothing_is_lost_twice_or_wrongly_timed(tmp_path: Path) -> None:
    async with Day(tmp_path, every_s=EVERY_S, tell=teller()) as day:
        assert day.things >= 300
        await day.live(SECONDS)
        verdict = await is_good(day)
        assert len(day.faults) == FAULTS
        assert verdict.odd_kept > 20
        assert verdict.good > day.things * 5


async def is_good(day: Day) -> Verdict:
    verdict = await day.settle()
    report = day.report(verdict)
    sys.stderr.write(f"{json.dumps(report)}\n")
    assert verdict.is_clean, report
    assert day.at_the_end == dict.fromkeys(day.families, 0)
    assert day.letters.others == []
    # All of it happened: what is not said proves nothing.
    assert {put.family for put in day.oracle.puts.values()} == day.families.keys()
    assert len({put.device for put in day.oracle.puts.values()}) == day.things
    assert verdict.odd_kept > 0
    return verdict


def teller() -> Callable[[str], object]:
    """What happens, with its second: pytest shows it of a failure."""
    began_s = time.monotonic()
    return lambda text: sys.stderr.write(f"{time.monotonic() - began_s:6.1f} {text[:600]}\n")
