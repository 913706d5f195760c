"""What is checked before anything starts."""

from __future__ import annotations

import os
import socket

import psutil
import pytest

from edgewake.deploy import checks
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
