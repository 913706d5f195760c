"""What is checked before anything starts."""

from __future__ import annotations

import os
import pwd
import socket

import psutil
import pytest

from edgewake.deploy.doctor import checks
from edgewake.protocol.errors import LocalError


def test_a_port_in_use_is_named_with_its_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        me = rf"{psutil.Process().name()} \(pid {os.getpid()}\)"
        with pytest.raises(
            LocalError,
            match=rf"^port {port} \(for ops\) is in use by {me}; stop it, or .* --port-base$",
        ):
            checks.ports({port: "ops"})


def test_a_port_whose_connections_linger_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            server_side, _ = listener.accept()
            server_side.close()
            assert client.recv(1) == b""
    checks.ports({port: "ops"})


def user(name: str, number: int, shell: str = "/bin/bash") -> pwd.struct_passwd:
    """An account."""
    return pwd.struct_passwd((name, "x", number, number, "", "/", shell))


def test_others_who_can_log_in_are_named_with_what_they_could_do() -> None:
    accounts = [
        user("root", 0),
        user("daemon", 1, "/usr/sbin/nologin"),
        user("mosquitto", 1001, "/usr/sbin/nologin"),
        user("me", os.getuid() or 1002),
        user("anna", 1003),
        user("ben", 1004),
        user("nobody", 65534),
    ]
    others = checks.other_users([one for one in accounts if one.pw_name != "me" or os.getuid()])
    assert others == ["anna", "ben"]
    line = checks.one_user_line(others, "127.0.0.1:8710")
    assert "anna, ben can log in here" in line
    assert "docs/production.md" in line
    assert checks.other_users([user("root", 0)]) == []
    assert "a, b, c and 2 more can" in checks.one_user_line(list("abcde"), "x")
