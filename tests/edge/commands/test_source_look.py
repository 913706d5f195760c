"""What `agent check` finds of sources that listen, start a program or speak OPC UA."""

from __future__ import annotations

import socket
import sys
from typing import Any

import pytest

from edgewake.edge.commands.source_look import look
from edgewake.edge.sources.config import kind
from edgewake.protocol.errors import LocalError
from tests.services import free_ports


def source(type_: str, **keys: Any) -> Any:
    return kind(type_).checked({"type": type_, "stream": "s", **keys})


def test_a_port_for_datagrams_is_free_or_taken() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(LocalError, match="taken by another program"):
            look(source("udp_lines", port=taken.getsockname()[1]))
    (port,) = free_ports(1)
    assert "free to listen" in look(source("udp_lines", port=port))


def test_a_program_is_there_or_not() -> None:
    assert "can be started" in look(source("exec", command=[sys.executable]))
    with pytest.raises(LocalError, match="not a program"):
        look(source("exec", command=["/no/such/program"]))


def test_a_server_of_opcua_takes_connections_or_not() -> None:
    node = [{"name": "x", "id": "ns=2;s=x"}]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = look(source("opcua", url=f"opc.tcp://127.0.0.1:{port}/", node=node))
        assert "takes connections" in found
    with pytest.raises(LocalError, match="does it run"):
        look(source("opcua", url=f"opc.tcp://127.0.0.1:{port}/", node=node))
