"""The directory of a log: one process owns it, and a mode without a log leaves none behind."""

from __future__ import annotations

import os
from pathlib import Path

from edgewake.edge.log.damage.salvage import (
    damaged_logs,
    delete,
)
from edgewake.edge.log.tables.schema import LOG_NAME, open_for_reading
from edgewake.protocol.errors import LocalError


def check_text(*texts: str) -> None:
    """Raises ValueError of a text that no file can hold: half of a pair of surrogates.

    In the log it would be taken for damage of the disk, or end the writer, again at each start.
    """
    for text in texts:
        text.encode()


def end_durable_log(directory: Path) -> None:
    """The agent logs to memory from now on: delete a log that was on the disk.

    Raises LocalError where something waits in it.
    """
    path = directory / LOG_NAME
    if damaged_logs(directory):
        raise LocalError(
            f"{directory}: a damaged log waits to be read: run once more with a mode that logs"
        )
    if not path.exists():
        return
    db = open_for_reading(path)
    try:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        waiting = (
            version
            and db.execute(
                "SELECT (SELECT count(*) FROM frames) + coalesce(sum(last - framed), 0) FROM "
                "streams"
            ).fetchone()[0]
        )
    finally:
        db.close()
    if waiting:
        raise LocalError(
            f"{path}: readings wait for the cloud: run with a mode that logs until they are sent"
        )
    delete(path)


def own_directory(directory: Path) -> int:
    """Lock the directory for this process: two agents on one log would number twice.

    Raises LocalError.
    """
    import fcntl

    fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise LocalError(
            f"{directory}: another agent uses this directory; expected one of its own for each"
        ) from error
    return fd
