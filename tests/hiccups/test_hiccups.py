"""Some cells of the table of `make hiccups`, on the whole system under load: all comes back,
nothing is lost, and what stands says why.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hiccups.faults import CUT, FENCED, FROZEN, KILLED, Cell
from tests.hiccups.measure import Measure, Row
from tests.hiccups.world import ANALYSIS, BRIDGE, SEQUENCER, WRITE_NOTHING, World

pytestmark = pytest.mark.services


SHORT = (Cell(SEQUENCER, FROZEN, 14.0),)
MORE = (
    Cell("kafka", FENCED, 10.0),
    Cell("mosquitto", CUT, 3.0),
    Cell(SEQUENCER, FENCED, 5.0),
    Cell(ANALYSIS, FENCED, 5.0),
    *SHORT,
    Cell(BRIDGE, KILLED),
)


@pytest.mark.parametrize(
    "cells",
    [pytest.param(SHORT, id="short"), pytest.param(MORE, id="more", marks=pytest.mark.long)],
)
async def test_all_comes_back_after_hiccups_and_what_stands_meanwhile_says_why(
    tmp_path: Path, cells: tuple[Cell, ...]
) -> None:
    rows: dict[str, Row] = {}
    async with World(tmp_path) as world:
        measure = Measure(world)
        await measure.begin()
        for cell in cells:
            row = await measure.row(cell)
            assert not row.not_done, row
            assert not row.is_stuck, row
            assert not row.is_late, row
            rows[f"{cell.part} {cell.fault}"] = row
        assert {part: world.written_files(part) for part in WRITE_NOTHING} == {
            part: set() for part in WRITE_NOTHING
        }
        await measure.until_all_came()
        assert measure.lost_and_twice() == (0, 0)
        await measure.end()
    if cells is MORE:
        assert rows["kafka fenced"].said, "nobody said that Kafka was shut out"
        assert rows["bridge-1 killed"].ended == {BRIDGE: 1}
    assert SEQUENCER in rows["sequencer frozen"].said
    assert rows["sequencer frozen"].detail, "windows stood, and the query said nothing of it"
