"""The epoch: a number for which (device, epoch, seq) never comes twice.

It changes with every start of the machine, and whenever the log is created, lost, damaged, copied
or put back.

How it is noticed: the sidecar repeats after every commit the log's id, its epoch and the number of
the commit. A log that is behind its sidecar was restored from an older copy (or, where a crash left
its write-ahead log, lost the end of that: damage); a log whose inode, file system or machine is not
the one written in it was copied; a log without its sidecar, or a sidecar without its log, was torn
from it. An image of the whole disk, log and sidecar together, can only be put back, or run a second
time, by a start of the machine: its boot id, 128 random bits of the kernel, is written in the log
too.

When in doubt, a new epoch begins. What was accepted before keeps its numbers, so a start costs
nothing but a number. Only in a copy, whose original may go on under the old epoch, what waits is
numbered again: it may then arrive twice, under both numbers, and is never lost.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgewake.edge.log.tables.sidecar import Known
from edgewake.protocol.clock import CLOCK_FLOOR_MS

EPOCH_START_MS: Final = 1_577_836_800_000
"""2020-01-01 UTC, where epochs begin to count."""
EPOCHS_PER_S: Final = 10_000
"""An epoch is seconds since 2020 times this, and a random rest: two copies that wake in the same
second differ."""
UNSET_EPOCHS: Final = (CLOCK_FLOOR_MS - EPOCH_START_MS) // 1000 * EPOCHS_PER_S - EPOCHS_PER_S
"""Epochs that no clock which is right gives: 1.9 million millions."""
COUNTED_ANEW: Final = frozenset({"copied", "without its sidecar"})
"""After these what waits gets new numbers: another log may go on with the old ones."""
_MACHINE_ID: Final = Path("/etc/machine-id")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class LogLocation:
    """Where a log lies, and since when the machine runs."""

    machine: str
    device: int
    inode: int
    boot: str
    """The kernel's boot id; empty: not known."""


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """What the log says of itself."""

    log_id: str
    epoch: int
    commit: int
    location: LogLocation


def new_epoch_reason(
    log: LogIdentity | None, known: Known | None, here: LogLocation, *, damaged: bool = False
) -> str | None:
    """Why a new epoch must begin; None where the log goes on.

    `known`: what the sidecar says. `damaged`: a damaged log was set aside.
    """
    if log is None:
        if damaged:
            return "damaged"
        return "created" if known is None else "lost"
    if known is None or known.log_id != log.log_id:
        return "without its sidecar"
    if known.epoch > log.epoch or known.commit > log.commit:
        return "restored"
    there = log.location
    if (there.machine, there.inode) != (here.machine, here.inode):
        return "copied"
    if there.boot != here.boot:
        return "of an earlier start"
    return None if there.device == here.device else "copied"


def next_epoch(previous: int, *, now_ms: int, rng: random.Random) -> int:
    """A number above `previous`, and above that of any log made earlier by a clock that was right.

    Where the clock was never set, nothing but chance tells a new log from those that were made and
    lost in the same 1970, as on a device that keeps its log in memory: so there is a wide choice,
    all of it below what a clock that is right gives.
    """
    by_clock = (
        (now_ms - EPOCH_START_MS) // 1000 * EPOCHS_PER_S
        if now_ms >= CLOCK_FLOOR_MS
        else rng.randrange(UNSET_EPOCHS)
    )
    return max(previous + 1, by_clock) + rng.randrange(EPOCHS_PER_S)


def boot_id() -> str:
    """The kernel's name of this start of the machine; empty where it has none."""
    return _BOOT_ID.read_text("ascii").strip() if _BOOT_ID.exists() else ""


def location_of(path: Path, *, boot: str) -> LogLocation:
    """Where the file lies now."""
    found = path.stat()
    machine = _MACHINE_ID.read_text("ascii").strip() if _MACHINE_ID.exists() else ""
    return LogLocation(machine, found.st_dev, found.st_ino, boot)
