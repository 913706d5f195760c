"""The clients that read at access servers now, by the servers' reports on `ew.clients`. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from edgewake.protocol.ops.open_client import SILENT_S, Ending, OpenClient, ServerClients

SERVERS_MAX = 100
"""The most access servers; reports of further ones are ignored."""


@dataclass
class ClientTable:
    """Clients by server. Times are ms since 1970 UTC."""

    servers: dict[str, ServerClients] = field(default_factory=dict)
    endings: dict[str, Ending] = field(default_factory=dict)
    """Client → the order to end it, until its server has acted."""

    def put(self, server: str, value: bytes | None) -> None:
        """Applies a server's report. Raises ValueError."""
        if value is None:
            self.servers.pop(server, None)
            return
        report = ServerClients.model_validate_json(value)
        if server not in self.servers and len(self.servers) >= SERVERS_MAX:
            raise ValueError("too many access servers")
        self.servers[server] = report

    def put_ending(self, client: str, value: bytes | None) -> None:
        """Applies an order, or its removal. Raises ValueError."""
        if value is None:
            self.endings.pop(client, None)
        else:
            self.endings[client] = Ending.model_validate_json(value)

    def look(self, now: int) -> None:
        """Forgets silent servers."""
        silent = [name for name, one in self.servers.items() if now - one.at > SILENT_S * 1000]
        for name in silent:
            del self.servers[name]

    def all(self) -> Iterator[tuple[str, OpenClient]]:
        """Yields each open client with its server."""
        for name, report in self.servers.items():
            for client in report.clients:
                yield name, client

    def find(self, client_id: str) -> OpenClient | None:
        """Returns the client with this id; None where it is not open."""
        return next((one for _, one in self.all() if one.id == client_id), None)
