"""Checks from outside what a source reads: is the file, the port, the server there? Blocking.

It reads nothing, logs in nowhere and changes nothing. Kinds of other packages are checked by the
same names of keys: `broker`, `url`, `path`, `host` and `port`, `token_file`.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from edgewake.edge.commands.broker_look import look as look_at_broker
from edgewake.edge.sources.config import SourceConfig
from edgewake.protocol.errors import LocalError

LOOK_S: Final = 5.0
"""Seconds for a connection."""
OPCUA_PORT: Final = 4840
_LISTENING: Final = {"http_intake": socket.SOCK_STREAM, "udp_lines": socket.SOCK_DGRAM}
"""Kinds that are sent to."""


def look(source: SourceConfig) -> str:
    """Look for the source and describe what is there.

    Raises LocalError with what to do, ConfigError for a file that cannot be used.
    """
    keys: Any = source
    if (token_file := getattr(keys, "token_file", None)) is not None:
        from edgewake.edge.sources.web.web_config import read_token

        read_token(token_file)
    if (broker := getattr(keys, "broker", None)) is not None:
        return look_at_broker(broker)
    if (url := getattr(keys, "url", None)) is not None:
        from edgewake.edge.sources.web.http_client import parse_url

        if url.startswith("opc.tcp:"):
            plant = urlsplit(url)
            return _takes_connections(plant.hostname or "", plant.port or OPCUA_PORT)
        found = parse_url(url, "http", "https", "ws", "wss")
        secure = found.scheme in ("https", "wss")
        return _takes_connections(found.hostname or "", found.port or (443 if secure else 80))
    if (path := getattr(keys, "path", None)) is not None:
        return _file(path)
    if hasattr(keys, "host") and hasattr(keys, "port"):
        kind = _LISTENING.get(source.type)
        return (
            _takes_connections(keys.host, keys.port)
            if kind is None
            else _may_listen(keys.host, keys.port, kind)
        )
    if (command := getattr(keys, "command", None)) is not None:
        return _program(command[0])
    return "nothing to look at from outside"


def _file(path: Path) -> str:
    try:
        found = path.stat()
    except FileNotFoundError as error:
        if not path.parent.is_dir():
            raise LocalError(
                f"{path}: the directory {path.parent} does not exist: is the path right?"
            ) from error
        return f"{path} is not there yet: it is read when it is made"
    except OSError as error:
        raise LocalError(f"{path}: {error.strerror}: which user runs the agent?") from error
    if stat.S_ISDIR(found.st_mode):
        raise LocalError(f"{path} is a directory: expected a file or a port")
    if not os.access(path, os.R_OK):
        raise LocalError(f"{path} cannot be read by this user: give the agent's user its group")
    return (
        f"{path} can be read, {found.st_size} bytes"
        if stat.S_ISREG(found.st_mode)
        else f"{path} can be opened"
    )


def _takes_connections(host: str, port: int) -> str:
    try:
        socket.create_connection((host, port), timeout=LOOK_S).close()
    except OSError as error:
        raise LocalError(
            f"{host}:{port}: {error}: is the address right, and does it run?"
        ) from error
    return f"{host}:{port} takes connections"


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise LocalError(f"{name}: not a program that this user may start: is the path right?")
    return f"{found} can be started"


def _may_listen(host: str, port: int, kind: socket.SocketKind) -> str:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, kind) as tried:
        if kind is socket.SOCK_STREAM:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise LocalError(
                    f"{host}:{port}: {error.strerror}: is it an address of this machine that this "
                    "user may have?"
                ) from error
            raise LocalError(
                f"{host}:{port} is taken by another program: choose another port, or end that one"
            ) from error
    return f"{host}:{port} is free to listen on"
