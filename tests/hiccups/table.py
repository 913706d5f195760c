"""`make hiccups`: how long readings, final windows and health take to come back after each fault of
each part and service.

    python -m tests.hiccups.table [--cells WORD …] [--seconds 1 5 20] [--markdown FILE]

One system under live load; one fault after another, each undone before the next. Prints a line for
each as it is found, and at the end what did not come back within ten times the outage (two minutes
at least), whose windows were final a minute after everything else, and what was lost or shown
twice.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.hiccups.faults import CONTROL, CUT, FENCED, FROZEN, FULL, KILLED, Cell
from tests.hiccups.measure import Measure, Row
from tests.hiccups.world import (
    ACCESS,
    ANALYSIS,
    BRIDGE,
    DISKS_MIB,
    LAKE,
    LOGS,
    OPS,
    PUSH,
    SEQUENCER,
    WRITE_NOTHING,
    World,
    may_mount,
)

WHO = ("mosquitto", "kafka", BRIDGE, SEQUENCER, ANALYSIS, ACCESS, PUSH, OPS, LAKE)
FREEZES_S = (1.0, 5.0, 20.0, 60.0)
CUTS_S = (5.0, 20.0, 60.0)
FULL_S = 15.0
FENCES_S = {
    "kafka": (4.0, 20.0),
    BRIDGE: (10.0,),
    SEQUENCER: (10.0,),
    ANALYSIS: (10.0,),
    PUSH: (10.0,),
    OPS: (10.0,),
}
WITHOUT = {
    **{Cell(part, FULL): "writes nothing" for part in WRITE_NOTHING},
    Cell("mosquitto", FENCED): "has no name in Kafka that another one could take",
    Cell(ACCESS, FENCED): "only reads, under no name",
    Cell(LAKE, FENCED): "only reads, under no name; its folder is its own",
}
"""Cells that there are not, and why."""


def cells(freezes_s: Sequence[float], cuts_s: Sequence[float]) -> list[Cell]:
    """All of the table."""
    found = [Cell("nothing", CONTROL)]
    for who in WHO:
        found.append(Cell(who, KILLED))
        found += [Cell(who, FROZEN, seconds) for seconds in freezes_s]
        found += [Cell(who, CUT, seconds) for seconds in cuts_s]
        if who in DISKS_MIB and may_mount():
            found.append(Cell(who, FULL, FULL_S))
        found += [Cell(who, FENCED, seconds) for seconds in FENCES_S.get(who, ())]
    return [*found, Cell(LOGS, FULL, FULL_S)] if may_mount() else found


def line(row: Row) -> str:
    """For the table."""
    times = [
        ("stuck" if found is None else f"{found:.1f}").rjust(9)
        for found in (row.readings_s, row.final_s, row.health_s)
    ]
    said = "; ".join(f"{part}: {why}" for part, why in sorted(row.said.items()))
    told = [f"query: {row.detail}"] if row.detail else []
    ended = [f"started again: {', '.join(sorted(row.ended))}"] if row.ended else []
    failed = [f"NOT DONE: {row.not_done}"] if row.not_done else []
    return f"{row.cell!s:28}{''.join(times)}  {' | '.join([*failed, said, *told, *ended])[:240]}"


def markdown(rows: Sequence[Row]) -> str:
    """The same as a table for people: seconds after the fault was over."""
    head = [
        "| fault | readings | final windows | health | parts that ended | what was said |",
        "|---|---|---|---|---|---|",
    ]
    without = [f"| {cell} | – | – | – | | {why} |" for cell, why in WITHOUT.items()]
    return "\n".join([*head, *map(_row, rows), *without, ""])


def _row(row: Row) -> str:
    times = [
        "stuck" if found is None else f"{found:.1f}"
        for found in (row.readings_s, row.final_s, row.health_s)
    ]
    said = [f"{part}: {why}" for part, why in sorted(row.said.items())]
    if row.detail:
        said.append(f"query: {row.detail}")
    if row.not_done:
        said.insert(0, f"not done: {row.not_done}")
    told = "; ".join(said).replace("|", "/")
    if len(told) > SAID_CHARS:
        told = told[:SAID_CHARS].rpartition(" ")[0] + " …"
    return f"| {row.cell} | {' | '.join(times)} | {', '.join(sorted(row.ended))} | {told} |"


SAID_CHARS = 160
HEADING = (
    f"{'fault':28}{'readings':>9}{'final':>9}{'health':>9}  what was said meanwhile (seconds "
    "after the fault was over)"
)


async def run(wanted: Sequence[Cell], folder: Path, rows: list[Row]) -> None:
    """Measure these, and add to `rows` what was found."""
    async with World(folder, with_disks=any(cell.fault == FULL for cell in wanted)) as world:
        measure = Measure(world)
        await measure.begin()
        print(f"load average {os.getloadavg()[0]:.1f}\n{HEADING}", flush=True)
        try:
            for cell in wanted:
                rows.append(await measure.row(cell))
                print(line(rows[-1]), flush=True)
            await measure.until_all_came()
        finally:
            lost, twice = measure.lost_and_twice()
            print(
                f"{lost} readings lost, {twice} shown twice, of {len(measure.ledger.readings)}",
                flush=True,
            )
            await measure.end()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cells",
        nargs="*",
        default=[],
        help="only those whose name has one of these words, e.g. 'kafka frozen'",
    )
    parser.add_argument(
        "--seconds",
        nargs="*",
        type=float,
        default=None,
        help="how long freezes and cuts last, instead of all",
    )
    parser.add_argument("--markdown", type=Path, help="write the table to this file, too")
    asked = parser.parse_args()
    found = cells(asked.seconds or FREEZES_S, asked.seconds or CUTS_S)
    wanted = [
        cell
        for cell in found
        if not asked.cells or any(words in str(cell) for words in asked.cells)
    ]
    with tempfile.TemporaryDirectory(prefix="hiccups-") as folder:
        rows: list[Row] = []
        try:
            asyncio.run(run(wanted, Path(folder), rows))
        finally:
            if asked.markdown:
                asked.markdown.write_text(markdown(rows), "utf-8")
    bad = {
        "stuck": [row for row in rows if row.is_stuck],
        "windows final late": [row for row in rows if row.is_late],
        "fault not done": [row for row in rows if row.not_done],
    }
    if any(bad.values()):
        sys.exit(
            "\n".join(
                f"{what}: {', '.join(str(row.cell) for row in found)}"
                for what, found in bad.items()
                if found
            )
        )


if __name__ == "__main__":
    main()
