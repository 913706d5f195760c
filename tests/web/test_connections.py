"""Connections of a server, bounded for each client."""

from __future__ import annotations

from edgewake.cloud.client_share import Clients
from edgewake.cloud.web.connections import Connections


def test_connections_of_one_client_are_bounded_and_those_of_a_proxy_only_together() -> None:
    connections = Connections(100, share=0.1, clients=Clients(["10.0.0.5"]))
    let_in = [connections.refusal("192.0.2.7") is None for _ in range(12)]
    assert (let_in.count(True), connections.refused) == (10, 2)
    assert all(connections.refusal("10.0.0.5") is None for _ in range(60))
    connections.leave("192.0.2.7")
    assert (connections.refusal("192.0.2.7"), len(connections)) == (None, 70)
    assert b"you hold 10 connections" in (connections.refusal("192.0.2.7") or b"")
