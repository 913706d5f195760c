"""What must be true before anything is started. Each check raises LocalError with one sentence that says what to do."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import psutil

from edgewake.deploy.jars import free_bytes
from edgewake.protocol.errors import LocalError

DISK_BYTES_MIN: Final = 1 << 30
"""Free bytes wanted in the data folder: what Kafka keeps of a day of the demo, with room to spare."""
_LIBRARIES: Final = ("aiomqtt", "confluent_kafka", "fastapi", "jgo", "psutil", "pyspark", "rich", "sqlite_utils", "uvicorn")

FreeBytes = Callable[[Path], int]


def libraries() -> None:
    """Is everything installed that the parts import?"""
    if missing := [name for name in _LIBRARIES if find_spec(name) is None]:
        raise LocalError(f"edgewake up needs more libraries: pip install 'edgewake[demo]' (no module {missing[0]})")


def ports(wanted: Mapping[int, str], *, host: str = "127.0.0.1") -> None:
    """Is every port free? `wanted`: port to the part that needs it. All that are taken are named, each with the process that holds it."""
    taken = [f"port {port} (for {part}) is in use by {_holder(port)}" for port, part in sorted(wanted.items()) if not _is_free(host, port)]
    if taken:
        raise LocalError("; ".join(taken) + "; stop it, or choose other ports with --port-base")


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EACCES:
                raise LocalError(f"port {port} may not be opened by this user; choose other ports with --port-base") from error
            return False
        return True


def _holder(port: int) -> str:
    """The process that listens on a port, as far as we may know."""
    try:
        found = [c for c in psutil.net_connections("tcp") if c.laddr and c.laddr.port == port and c.pid]
        listening = [c for c in found if c.status == psutil.CONN_LISTEN] or found
        process = psutil.Process(listening[0].pid)
        return f"{process.name()} (pid {process.pid})"
    except (IndexError, psutil.Error):
        return "a process of another user"


def folder(path: Path, *, free: FreeBytes = free_bytes) -> None:
    """Make the data folder; is it ours to write, with DISK_BYTES_MIN free?"""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".probe-{os.getpid()}"
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        raise LocalError(f"{path} cannot be written: {error.strerror}; choose another folder with --data") from error
    if (bytes_free := free(path)) < DISK_BYTES_MIN:
        raise LocalError(
            f"{path} has {bytes_free >> 20} MiB free, {DISK_BYTES_MIN >> 20} MiB are needed; make room or choose another folder with --data"
        )


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Hold the folder's lock; another instance is named by its pid. The lock ends with the process, however it ends."""
    with (path / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            pid = file.read().strip() or "unknown"
            raise LocalError(f"edgewake up already runs on {path} (pid {pid}); stop it, or choose another folder with --data") from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
