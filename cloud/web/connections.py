"""Bounds on a server's connections: per client address, and in all, before anything is read.

A connection over a bound is told 503 and closed. Connections of a proxy of ours are many clients',
which the proxy itself bounds.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from edgewake.cloud.client_share import SHARE_DEFAULT, Bound, Clients
from edgewake.cloud.web.problem import PROBLEM_TYPE, problem_body

CONNECTIONS_MAX: Final = 2000
"""The bound of a part that answers at once: some kilobytes each."""
RETRY_AFTER_S: Final = 5


class Connections:
    """The open connections of one server."""

    def __init__(
        self,
        most: int = CONNECTIONS_MAX,
        *,
        share: float = SHARE_DEFAULT,
        clients: Clients | None = None,
    ) -> None:
        self.refused = 0
        self._bound = Bound("connections", most, share)
        self._clients = clients or Clients()
        self._held: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._held.total()

    def refusal(self, peer: str | None) -> bytes | None:
        """The refusal of one more connection; None: it is accepted, and counts until `leave`."""
        client = self._clients.of(peer)
        held = 0 if self._clients.is_proxy(peer) else self._held[client]
        why = self._bound.refusal(total=len(self), held=held)
        if why is None:
            self._held[client] += 1
            return None
        self.refused += 1
        body = problem_body(503, "connections", why)
        head = (
            f"content-type: {PROBLEM_TYPE}\r\ncontent-length: {len(body)}\r\nretry-after: "
            f"{RETRY_AFTER_S}\r\nconnection: close\r\n\r\n"
        )
        return b"HTTP/1.1 503 Service Unavailable\r\n" + head.encode() + body

    def leave(self, peer: str | None) -> None:
        """One that was let in is gone."""
        client = self._clients.of(peer)
        self._held[client] -= 1
        if self._held[client] <= 0:
            del self._held[client]
