"""What is checked before anything starts."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import psutil
import pytest

from edgewake.deploy import checks, secret_files
from edgewake.protocol.errors import LocalError


def test_a_port_in_use_is_named_with_its_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        me = rf"{psutil.Process().name()} \(pid {os.getpid()}\)"
        with pytest.raises(LocalError, match=rf"^port {port} \(for ops\) is in use by {me}; stop it, or .* --port-base$"):
            checks.ports({port: "ops"})


def test_a_port_whose_connections_linger_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            server_side, _ = listener.accept()
            server_side.close()
            assert client.recv(1) == b""
    checks.ports({port: "ops"})


def test_too_little_space_is_said_with_figures(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"has 300 MiB free, 1024 MiB are needed; make room or .* --data$"):
        checks.folder(tmp_path / "data", free=lambda _path: 300 << 20)


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LocalError, match=r"file/data cannot be written: Not a directory; choose another folder with --data"):
        checks.folder(tmp_path / "file" / "data")


def test_a_folder_is_held_by_one_instance(tmp_path: Path) -> None:
    already = pytest.raises(LocalError, match=rf"already runs on {tmp_path} \(pid {os.getpid()}\)")
    with checks.only_one(tmp_path), already, checks.only_one(tmp_path):
        pass
    with checks.only_one(tmp_path):
        pass


def test_secrets_are_made_once_and_only_their_owner_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "secrets" / "cursor.key"
    first = secret_files.ensure(path, secret_files.cursor_key())
    assert secret_files.ensure(path, secret_files.cursor_key()) == first == path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    kid, key = first.split()
    assert (kid, len(bytes.fromhex(key))) == ("1", 32)
