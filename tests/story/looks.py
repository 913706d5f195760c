"""What the parts of a running system take: files of the checkpoints and of the lake, and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from tests.story.system import System

PARTS: Final = ("analysis", "kafka", "sequencer", "access-1", "bridge-1", "agent-a")
"""Whose memory is looked at."""
MEMORY_MIB_MAX: Final[Mapping[str, float]] = {
    "analysis": 1800,
    "kafka": 700,
    "sequencer": 250,
    "access-1": 250,
    "bridge-1": 250,
    "agent-a": 150,
}
"""Part → of it and its children, MiB: about twice what is seen after an hour; the analysis has a
heap of 1 GiB that it seldom fills."""
LANE_FILES_MAX: Final = 120
"""Of one lane's checkpoint, whatever its age: some fifty once it has run for thirty batches, and
one more a batch until the next turn of maintenance, which is late on a busy machine."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one moment."""

    checkpoint_files: Mapping[str, int]
    """Lane, as `stream/kind` → its files."""
    checkpoint_mib: float
    lake_files: int
    rss_mib: Mapping[str, float]
    """Part → of it and its children; parts that are dead at the moment are left out."""

    @property
    def files(self) -> int:
        """Of all checkpoints."""
        return sum(self.checkpoint_files.values())

    def too_much(self) -> dict[str, float]:
        """Lane or part → what it takes, where that is beyond its bound."""
        lanes = {
            lane: float(files)
            for lane, files in self.checkpoint_files.items()
            if files > LANE_FILES_MAX
        }
        return lanes | {
            name: mib for name, mib in self.rss_mib.items() if mib > MEMORY_MIB_MAX[name]
        }


def look(system: System) -> Look:
    """Look now."""
    folder = system.directory / "analysis"
    lanes = {"/".join(path.parts[-2:]): sizes(path) for path in folder.glob("checkpoints/*/*")}
    rss = {name: rss_mib(system.pid(name)) for name in PARTS}
    return Look(
        checkpoint_files={lane: len(found) for lane, found in lanes.items()},
        checkpoint_mib=sum(map(sum, lanes.values())) / 2**20,
        lake_files=len(sizes(folder / "lake")),
        rss_mib={name: mib for name, mib in rss.items() if mib},
    )


def rss_mib(pid: int) -> float:
    """Of a process and its children; 0 where it is gone."""
    total = 0
    try:
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            total += process.memory_info().rss
    except psutil.NoSuchProcess:
        pass
    return total / 2**20


def sizes(folder: Path) -> Sequence[int]:
    """Bytes of each file in it. A file may go while it is looked at."""
    found = []
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                found.append(path.stat().st_size)
        except FileNotFoundError:
            continue
    return found


def batches(folder: Path) -> int:
    """How many batches the lane with this checkpoint has begun."""
    return max((int(path.name) + 1 for path in (folder / "offsets").glob("[0-9]*")), default=0)
