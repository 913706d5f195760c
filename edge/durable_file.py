"""A small file, written durably: after a crash it is the old one or the new one, whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

NEW_SUFFIX: Final = ".new"
"""The suffix of the file that is written beside it first. One that a crash left is overwritten."""


def replace(path: Path, data: bytes) -> None:
    """Write or replace it, for its owner only. Raises OSError: then it is as it was."""
    new = path.with_name(path.name + NEW_SUFFIX)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def check(path: Path) -> None:
    """Could it be written? Nothing is changed. Raises OSError where it could not."""
    new = path.with_name(path.name + NEW_SUFFIX)
    new.touch(0o600)
    new.unlink()


def sync_directory(directory: Path) -> None:
    """Make names that were made, changed or removed in it durable. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
