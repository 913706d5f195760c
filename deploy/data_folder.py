"""The data folder of `edgewake up`: private, for one instance, of a compatible version.

Everything raises LocalError with one sentence that says what to do, before anything in the folder
is changed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from edgewake.protocol.errors import LocalError

VERSION: Final = 4
"""The version of what the folder holds: Kafka's topics and records, the agent's log, checkpoints,
names of files. Grows with each change that an older or newer Edgewake cannot read. 1 had no
number."""
DISK_BYTES_MIN: Final = 1 << 30
"""Free bytes wanted: what Kafka keeps of a day of the demo, with room to spare."""
_OWN: Final = frozenset({"kafka", "secrets", "agent", "analysis", "mosquitto", "config"})
"""What a folder without a number must hold to be one of ours."""

FreeBytes = Callable[[Path], int]


def free_bytes(path: Path) -> int:
    """Free bytes of the disk that holds `path`."""
    return shutil.disk_usage(path).free


@contextmanager
def opened(path: Path, *, free: FreeBytes = free_bytes) -> Iterator[None]:
    """Make or check the folder, and hold its lock.

    The lock ends with the process, however it ends.
    """
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = {entry.name for entry in path.iterdir()}
    except OSError as error:
        raise LocalError(
            f"{path} cannot be written: {error.strerror}; choose another folder with --data"
        ) from error
    _check_content(path, found)
    if (bytes_free := free(path)) < DISK_BYTES_MIN:
        raise LocalError(
            f"{path} has {bytes_free >> 20} MiB free, {DISK_BYTES_MIN >> 20} MiB are needed; make "
            "room or choose another folder with --data"
        )
    with _locked(path):
        try:
            # Kafka's files hold secrets of leases; the folder may have been made by somebody else.
            path.chmod(0o700)
            _write_version(path)
        except OSError as error:
            raise LocalError(
                f"{path} cannot be written: {error.strerror}; choose another folder with --data"
            ) from error
        yield


def _check_content(path: Path, found: set[str]) -> None:
    """Is it empty, or a data folder of this version?"""
    if "version" not in found:
        if found & _OWN:
            raise LocalError(
                f"{path} was written by an Edgewake that kept no version in it, and this one "
                "cannot go on from it; "
                "move it away or choose another folder with --data"
            )
        if found - {"lock", "lost+found"}:  # the latter is of a disk of its own
            raise LocalError(
                f"{path} holds other files and no data of Edgewake; choose an empty or a new "
                "folder with --data"
            )
        return
    text = (path / "version").read_text("ascii", "replace").strip()
    if text != str(VERSION):
        whose = (
            "a newer Edgewake" if text.isdigit() and int(text) > VERSION else "an older Edgewake"
        )
        raise LocalError(
            f"{path} has version {text[:20]} and was written by {whose}; this one reads version "
            f"{VERSION}: start that one again, or choose another folder with --data"
        )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        file = (path / "lock").open("a+")
    except OSError as error:
        raise LocalError(
            f"{path} cannot be written: {error.strerror}; choose another folder with --data"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            pid = file.read().strip() or "unknown"
            raise LocalError(
                f"edgewake up already runs on {path} (pid {pid}); stop it, or choose another "
                "folder with --data"
            ) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _write_version(path: Path) -> None:
    if not (path / "version").exists():
        (path / "version.new").write_text(f"{VERSION}\n", "ascii")
        (path / "version.new").replace(path / "version")
