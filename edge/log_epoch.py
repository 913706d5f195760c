"""The epoch: a number that changes whenever the log is created, lost, copied or restored, so that (device, epoch, seq) never comes twice.

How it is noticed: beside the log lies the *mark*, a small file that repeats after every commit the log's id, its epoch and the number
of the commit. A log that is behind its mark was restored from an older copy; a log whose inode, device number or machine is not the
one written in it was copied; a log without its mark, or a mark without its log, was torn from it. A doubt always makes a new epoch: that
costs nothing but a number. What cannot be noticed: an image of the whole disk that runs twice on machines with one machine id.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Final

EPOCH_START_MS: Final = 1_577_836_800_000
"""2020-01-01 UTC, where epochs begin to count."""
EPOCHS_PER_S: Final = 10_000
"""An epoch is seconds since 2020 times this, and a random rest: two copies that wake in the same second differ."""
MARK_NAME: Final = "epoch"
_MACHINE_ID: Final = Path("/etc/machine-id")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a log lies: another place means a copy."""

    machine: str
    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """What the log says of itself."""

    log_id: str
    epoch: int
    commit: int
    place: Place


@dataclass(frozen=True, slots=True)
class Mark:
    """What the side file says of the log."""

    log_id: str
    epoch: int
    commit: int

    def encode(self) -> bytes:
        """A line of fixed length, so that one write replaces it whole."""
        return f"{self.log_id:<32} {self.epoch:020d} {self.commit:020d}\n".encode()

    @classmethod
    def decode(cls, line: bytes) -> Mark | None:
        """None where the line is not ours."""
        try:
            log_id, epoch, commit = line.decode("ascii").split()
            return cls(log_id, int(epoch), int(commit))
        except ValueError:
            return None


def why_new(log: LogIdentity | None, mark: Mark | None, place: Place) -> str | None:
    """Why a new epoch must begin; None where the log goes on."""
    if log is None:
        return "created" if mark is None else "lost"
    if mark is None or mark.log_id != log.log_id:
        return "without its mark"
    if mark.epoch > log.epoch or mark.commit > log.commit:
        return "restored"
    return None if log.place == place else "copied"


def next_epoch(previous: int, *, now_ms: int, rng: random.Random) -> int:
    """A number above `previous`, and above that of any log made earlier by a clock that was right."""
    by_clock = max(0, now_ms - EPOCH_START_MS) // 1000 * EPOCHS_PER_S
    return max(previous + 1, by_clock) + rng.randrange(EPOCHS_PER_S)


def place_of(path: Path) -> Place:
    """Where the file lies now."""
    found = path.stat()
    machine = _MACHINE_ID.read_text("ascii").strip() if _MACHINE_ID.exists() else ""
    return Place(machine, found.st_dev, found.st_ino)


class MarkFile:
    """The side file. `write` survives the death of the process, `sync` that of the machine."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / MARK_NAME
        self._fd: int | None = None

    def read(self) -> Mark | None:
        """None where there is none."""
        return Mark.decode(self._path.read_bytes()) if self._path.exists() else None

    def write(self, mark: Mark) -> None:
        """Replace the mark. After the commit that it repeats, never before."""
        if self._fd is None:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        os.pwrite(self._fd, mark.encode(), 0)

    def sync(self) -> None:
        """Force it to the disk."""
        if self._fd is not None:
            os.fsync(self._fd)

    def close(self) -> None:
        """Sync and close."""
        if self._fd is not None:
            os.fsync(self._fd)
            os.close(self._fd)
            self._fd = None
