"""Keys that `edgewake up` makes once: later starts use them, so earlier cursors stay valid."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from edgewake.protocol.errors import LocalError
from edgewake.protocol.files.durable import sync_directory


def ensure(path: Path, text: str) -> str:
    """The file's content; where it is not there it is made with `text`, readable by its owner only.

    Raises LocalError.

    The file is written aside, synced and linked to its name: it is whole or absent, whenever the
    machine stops, and of two processes that make it at once one wins and both read the same.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            new.unlink(missing_ok=True)
            with os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):  # another process was faster
                path.hardlink_to(new)
            new.unlink()
            sync_directory(path.parent)
        return path.read_text("ascii")
    except OSError as error:
        raise LocalError(f"{path}: {error.strerror}") from error


def cursor_key() -> str:
    """A line `kid hexkey`."""
    return f"1 {secrets.token_hex(32)}\n"


def lease_key() -> str:
    """A line `hexkey`: a key that encrypts addresses of leases, or of alerts, in Kafka."""
    return f"{secrets.token_hex(32)}\n"


def share_key() -> str:
    """A line `hexkey`: the key that makes the name under which bridges share messages."""
    return f"{secrets.token_hex(32)}\n"


def reader_key() -> str:
    """A key that reads streams; short, since it stands in a QR code."""
    return f"{secrets.token_hex(16)}\n"


def ops_key() -> str:
    """An API key that survives a copy by double click."""
    return f"ew_{secrets.token_hex(20)}\n"
