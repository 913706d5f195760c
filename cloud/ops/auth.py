"""Who may use the operations API: the key, or for the live tail in a browser a ticket that is used once."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Receive, Scope, Send

from edgewake.cloud.web import Problem
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import ConfigError

TICKET_LIFE_S: Final = 30
TICKETS_MAX: Final = 1000
"""Tickets outstanding; the oldest goes first."""
KEY_CHARS_MIN: Final = 16
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics", "/openapi.json"})
TICKET_PATH: Final = "/v1/live"


def read_key(path: Path) -> str:
    """The API key of a file; raises ConfigError."""
    try:
        key = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"key_file = {str(path)!r}: {error}") from error
    if len(key) < KEY_CHARS_MIN or not key.isascii():
        raise ConfigError(f"key_file = {str(path)!r}: expected at least {KEY_CHARS_MIN} ASCII characters")
    return key


class Tickets:
    """One-time tickets: good for TICKET_LIFE_S and for one request, so that an address in a log is worth nothing."""

    def __init__(self, clock: Clock, make: Callable[[], str]) -> None:
        self._clock = clock
        self._make = make
        self._until: dict[str, float] = {}

    def issue(self) -> str:
        """A new ticket."""
        while len(self._until) >= TICKETS_MAX:
            self._until.pop(next(iter(self._until)))
        ticket = self._make()
        self._until[ticket] = self._clock.monotonic_s() + TICKET_LIFE_S
        return ticket

    def redeem(self, ticket: str) -> bool:
        """Is it good? It is not any more afterwards."""
        return self._until.pop(ticket, float("-inf")) >= self._clock.monotonic_s()


class Guard:
    """ASGI: everything but OPEN_PATHS needs the key, whether it exists or not; before anything of the request is read."""

    def __init__(self, app: ASGIApp, *, key: str, tickets: Tickets) -> None:
        self._app = app
        self._digest = sha256(key.encode()).digest()
        self._tickets = tickets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._may(scope):
            return await self._app(scope, receive, send)
        problem = Problem(
            401, "key_missing", "expected Authorization: Bearer KEY or X-API-Key: KEY", headers={"WWW-Authenticate": "Bearer"}
        )
        await problem.response()(scope, receive, send)
        return None

    def _may(self, scope: Scope) -> bool:
        headers = dict(scope["headers"])
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":
            given = headers.get(b"x-api-key", b"")
        if given and hmac.compare_digest(sha256(given.strip()).digest(), self._digest):
            return True
        tickets = parse_qs(scope["query_string"].decode("latin-1")).get("ticket", []) if scope["path"] == TICKET_PATH else []
        return len(tickets) == 1 and self._tickets.redeem(tickets[0])
