"""Clients that read at the access servers now, as the servers say it on `ew.clients`. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from edgewake.protocol.ops.open_client import SILENT_S, Ending, OpenClient, ServerClients

SERVERS_MAX = 100
"""Servers remembered; a new one beyond it is left out."""


@dataclass
class ClientTable:
    """See the module. Times are ms since 1970 UTC."""

    servers: dict[str, ServerClients] = field(default_factory=dict)
    endings: dict[str, Ending] = field(default_factory=dict)
    """Words that are not heard yet."""

    def put(self, server: str, value: bytes | None) -> None:
        """What a server says. Raises ValueError."""
        if value is None:
            self.servers.pop(server, None)
            return
        report = ServerClients.model_validate_json(value)
        if server not in self.servers and len(self.servers) >= SERVERS_MAX:
            raise ValueError("more access servers than are remembered")
        self.servers[server] = report

    def put_ending(self, client: str, value: bytes | None) -> None:
        """A word, or its end. Raises ValueError."""
        if value is None:
            self.endings.pop(client, None)
        else:
            self.endings[client] = Ending.model_validate_json(value)

    def look(self, now: int) -> None:
        """Forget servers that are silent."""
        silent = [name for name, one in self.servers.items() if now - one.at > SILENT_S * 1000]
        for name in silent:
            del self.servers[name]

    def all(self) -> Iterator[tuple[str, OpenClient]]:
        """Each open client with its server."""
        for name, report in self.servers.items():
            for client in report.clients:
                yield name, client

    def find(self, client_id: str) -> OpenClient | None:
        """The client of this id; None where it is not open."""
        return next((one for _, one in self.all() if one.id == client_id), None)
