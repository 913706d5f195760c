"""What the servers say of their clients, and what is forgotten of a server that is silent."""

from __future__ import annotations

import pytest

from edgewake.cloud.ops.tables.client_table import SERVERS_MAX, ClientTable
from edgewake.protocol.ops.open_client import SILENT_S, OpenClient, ServerClients


def said(server: str, at: int, *ids: str) -> bytes:
    clients = tuple(
        OpenClient(
            id=name, protocol="sse", principal="ann", proof="key", address="10.0.0.1",
            streams=("s",), opened_at=0, state="live", slow="",
        )
        for name in ids
    )  # fmt: skip
    report = ServerClients(server=server, at=at, total=len(ids), clients=clients)
    return report.model_dump_json().encode()


def test_the_last_report_of_each_server_counts() -> None:
    table = ClientTable()
    table.put("a", said("a", 1, "a-1", "a-2"))
    table.put("b", said("b", 1, "b-1"))
    table.put("a", said("a", 2, "a-2"))
    assert sorted(client.id for _, client in table.all()) == ["a-2", "b-1"]
    assert table.find("a-1") is None
    table.put("b", None)
    assert [name for name, _ in table.all()] == ["a"]


def test_a_server_that_is_silent_is_forgotten() -> None:
    table = ClientTable()
    table.put("a", said("a", 0, "a-1"))
    table.look(int(SILENT_S * 1000))
    assert table.find("a-1") is not None
    table.look(int(SILENT_S * 1000) + 1)
    assert table.find("a-1") is None


def test_more_servers_than_are_remembered_are_refused_and_known_ones_are_not() -> None:
    table = ClientTable()
    for number in range(SERVERS_MAX):
        table.put(str(number), said(str(number), 0))
    with pytest.raises(ValueError, match="too many access servers"):
        table.put("one more", said("one more", 0))
    table.put("0", said("0", 1, "x"))
    assert table.find("x") is not None
