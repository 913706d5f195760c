"""A day in short: three hundred mixed devices, each fault once, and nothing is lost, doubled or
wrongly timed. `make day` lives it in ten minutes.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from tests.day.day import Day

pytestmark = pytest.mark.services
SECONDS = 26.0
EVERY_S = 3.0
"""Between two numbers of a device."""
FAULTS = 13


@pytest.mark.long
async def test_of_a_day_nothing_is_lost_twice_or_wrongly_timed(tmp_path: Path) -> None:
    began_s = time.monotonic()

    def tell(text: str) -> None:  # pytest shows it of a failure
        sys.stderr.write(f"{time.monotonic() - began_s:6.1f} {text[:600]}\n")

    async with Day(tmp_path, every_s=EVERY_S, tell=tell) as day:
        assert day.things >= 300
        await day.live(SECONDS)
        verdict = await day.settle()
        report = day.report(verdict)
        tell(json.dumps(report))
        assert verdict.is_clean, report
        assert day.at_the_end == dict.fromkeys(day.families, 0)
        assert day.letters.others == []
        # All of it happened: what is not said proves nothing.
        assert len(day.faults) == FAULTS
        assert verdict.odd_kept > 20
        families = {put.family for put in day.oracle.puts.values()}
        assert families == day.families.keys()
        assert len({put.device for put in day.oracle.puts.values()}) == day.things
        assert verdict.good > day.things * 5
