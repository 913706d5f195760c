"""Locks the `data_dir` of an analysis for one process, and gives the folder a unique name."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import uuid
from pathlib import Path
from typing import Final

from edgewake.protocol.errors import LocalError
from edgewake.protocol.files.durable import sync_directory

_NAME_CHARS: Final = 32


def lock(folder: Path) -> int | None:
    """Lock the folder until the descriptor is closed; None where another process has it.

    Raises LocalError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LocalError(f"data_dir {folder}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def name_of(folder: Path, host: str | None = None) -> str:
    """Return the folder's name: the same after every restart, another one for a copy of the folder.

    Raises LocalError.
    """
    path = folder / "name"
    try:
        seed = path.read_text("ascii") if path.exists() else ""
        if not seed:  # a power cut may have left it empty, before it was made durable
            seed = uuid.uuid4().hex
            _keep(path, seed)
    except OSError as error:
        raise LocalError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise LocalError(f"{path}: expected ASCII: {error.reason}") from error
    return hashlib.sha256(
        f"{seed}\n{host or socket.gethostname()}\n{folder.resolve()}".encode()
    ).hexdigest()[:_NAME_CHARS]


def _keep(path: Path, text: str) -> None:
    """Write a file that is there whole after a power cut, or not at all."""
    new = path.with_suffix(".new")
    with new.open("w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_directory(path.parent)
