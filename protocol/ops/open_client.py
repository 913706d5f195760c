"""Clients that read at an access server now, and the word that ends one.

Each access server says on `ew.clients` (key: its name) every few seconds who reads there. An
operator's word stands on `ew.endings` (key: the client's id) until it is heard or too old; one that
wakes a sleeping client, tests a delivery's endpoint, or ends a delivery or a group (key: that of
its row of `ew.leases`), stands there, too.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, StringConstraints

from edgewake.protocol.ops.proof import Kind

CLIENTS_TOLD_MAX: Final = 1000
"""Clients of one server that are told one by one: those farthest behind first, then the newest. Of
all the number is told."""
FILTER_CHARS_MAX: Final = 200
"""Characters of a filter that are told."""
REPORT_EVERY_S: Final = 3.0
"""Seconds between two reports of a server."""
SILENT_S: Final = 15.0
"""Seconds without a report after which nobody knows any more who reads there."""
ENDING_HOLDS_S: Final = 60.0
"""Seconds for which a word that ends a client counts: it says nothing of one that comes later."""
WAKE: Final = "wake|"
"""Begins the key of a word that wakes a sleeping client; the lease's id follows."""
TEST: Final = "test|"
"""Begins the key of a word that calls a delivery's endpoint once; the delivery's id follows."""
ID_PATTERN: Final = r"^[A-Za-z0-9._-]{1,128}$"

ClientProtocol: TypeAlias = Literal["sse", "websocket", "page"]
"""`page`: an answer that ends, being read or waited for."""
ClientState: TypeAlias = Literal["opening", "waiting", "behind", "live", "ending"]
"""`waiting`: for a stream that is not there yet; `behind`: it reads older records."""
ClientId = Annotated[str, StringConstraints(pattern=ID_PATTERN)]


class OpenClient(BaseModel):
    """One open stream: of a WebSocket each subscription. Times are ms since 1970 UTC."""

    model_config = ConfigDict(frozen=True)

    id: ClientId
    protocol: ClientProtocol
    principal: str
    proof: Kind
    """By what it is known."""
    address: str
    """Its network address; of IPv6 the network."""
    streams: tuple[str, ...]
    where: str = ""
    """Its filter; empty: all."""
    select: str = ""
    opened_at: int
    state: ClientState
    behind_records: int = 0
    """Records of Kafka that it has not been sent, at most."""
    behind_s: float = 0.0
    """Age of the oldest of them, at least."""
    unsent_bytes: int = 0
    """Written, and not taken by the client yet."""
    sent_bytes: int = 0
    slow: str
    """What becomes of it while it takes less than there is, in words."""
    policy: str = ""
    """What is done then, in short: e.g. `wait`, or `skip in 12 s` where it is slow now."""


class ServerClients(BaseModel):
    """What one access server says."""

    model_config = ConfigDict(frozen=True)

    server: str
    at: int
    """When, ms since 1970 UTC."""
    total: int
    """Open streams, told or not."""
    clients: tuple[OpenClient, ...]


class Ending(BaseModel):
    """An operator ends a client: an open stream, a lease, a delivery or a group."""

    model_config = ConfigDict(frozen=True)

    at: int
    """When, ms since 1970 UTC."""
    by: str
    """Who; the client is not told."""
    reason: Annotated[str, StringConstraints(max_length=200)] = ""
    """What the client is told."""

    def holds(self, now_ms: int) -> bool:
        """Does it count still?"""
        return now_ms - self.at <= ENDING_HOLDS_S * 1000
