"""What must be true before anything is started.

Each check raises LocalError with one sentence that says what to do.
"""

from __future__ import annotations

import errno
import os
import pwd
import socket
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Final

import psutil

from edgewake.protocol.errors import LocalError

_LIBRARIES: Final = (
    "confluent_kafka",
    "fastapi",
    "jgo",
    "psutil",
    "pyspark",
    "rich",
    "segno",
    "sqlite_utils",
    "tomli_w",
    "uvicorn",
)

FIRST_USER_ID: Final = 1000
"""The first user id of people; below are the system's."""
NOBODY_ID: Final = 65534
NO_SHELLS: Final = ("nologin", "false")
NAMED_MAX: Final = 3
"""Users that are named; the others are counted."""


def libraries() -> None:
    """Is everything installed that the parts import?"""
    if missing := [name for name in _LIBRARIES if find_spec(name) is None]:
        raise LocalError(
            "edgewake up needs more libraries: pip install 'edgewake[demo]' (no module "
            f"{missing[0]})"
        )


def ports(wanted: Mapping[int, str], *, host: str = "127.0.0.1") -> None:
    """Is every port free? `wanted`: port to the part that needs it.

    All that are taken are named, each with the process that holds it.
    """
    taken = [
        f"port {port} (for {part}) is in use by {_holder(port)}"
        for port, part in sorted(wanted.items())
        if not _is_free(host, port)
    ]
    if taken:
        raise LocalError("; ".join(taken) + "; stop it, or choose other ports with --port-base")


def other_users(users: Iterable[pwd.struct_passwd] | None = None) -> list[str]:
    """Who else can log in here, by name; `users`: all accounts.

    Root is nobody else: it may do everything anyway.
    """
    mine = os.getuid()
    return sorted(
        user.pw_name
        for user in (pwd.getpwall() if users is None else users)
        if FIRST_USER_ID <= user.pw_uid < NOBODY_ID
        and user.pw_uid != mine
        and not user.pw_shell.endswith(NO_SHELLS)
    )


def one_user_line(others: Sequence[str], mqtt: str) -> str:
    """What is said where others can log in: what they can do, and what to use instead."""
    names = ", ".join(others[:NAMED_MAX]) + (
        f" and {len(others) - NAMED_MAX} more" if len(others) > NAMED_MAX else ""
    )
    return (
        f"! `edgewake up` is for a machine with one user, and {names} can log in here, too: they "
        "can read everything, and send and "
        f"command as any device over MQTT on {mqtt}. For a machine of several users see "
        "docs/production.md"
    )


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EACCES:
                raise LocalError(
                    f"port {port} may not be opened by this user; choose other ports with "
                    "--port-base"
                ) from error
            return False
        return True


def _holder(port: int) -> str:
    """The process that listens on a port, as far as we may know."""
    try:
        found = [
            c for c in psutil.net_connections("tcp") if c.laddr and c.laddr.port == port and c.pid
        ]
        listening = [c for c in found if c.status == psutil.CONN_LISTEN] or found
        process = psutil.Process(listening[0].pid)
        return f"{process.name()} (pid {process.pid})"
    except (IndexError, psutil.Error):
        return "a process of another user"
