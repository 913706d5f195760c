"""Keys that `edgewake up` makes once and keeps: a next start goes on with them, so that cursors of before stay good."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from edgewake.protocol.errors import LocalError


def ensure(path: Path, text: str) -> str:
    """The file's content; where it is not there it is made with `text`, readable by its owner only. Raises LocalError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            return path.read_text("ascii")
        with os.fdopen(file, "w") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        return text
    except OSError as error:
        raise LocalError(f"{path}: {error.strerror}") from error


def cursor_key() -> str:
    """A line `kid hexkey`."""
    return f"1 {secrets.token_hex(32)}\n"


def ops_key() -> str:
    """An API key that survives a copy by double click."""
    return f"ew_{secrets.token_hex(20)}\n"
