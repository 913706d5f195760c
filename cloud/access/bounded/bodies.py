"""Answers of many rows, made once for all who ask for the same at the same time, and bounded.

    BYTES_MAX   of all that are being made or sent, one that several are sent counted once; one more
                is refused with 503
    SAME_MAX    different states of one answer that are being sent: who asks then is given the
                newest, where that is FRESH_S old at most, for its cursor goes on from exactly it

A body is kept as long as somebody is sent it, and no longer. One event loop uses it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from typing import Final
from weakref import WeakSet

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from edgewake.protocol.errors import Unavailable

BYTES_MAX: Final = 256 * 1024 * 1024
PIECE_BYTES: Final = 64 * 1024
"""Bytes that are given to a connection at once: what it holds while its client reads."""
SAME_MAX: Final = 3
FRESH_S: Final = 1.0


class Body:
    """An answer, in pieces. `made` is done when all are there."""

    def __init__(self, bodies: Bodies, what: Hashable, state: Hashable, at_s: float) -> None:
        self.what, self.state, self.at_s = what, state, at_s
        self.pieces: list[bytes] = []
        self.made: asyncio.Task[None]
        self.size = 0
        self._bodies = bodies

    def add(self, piece: bytes) -> None:
        """The next piece. Raises Unavailable where there is no room for it."""
        self.pieces.append(piece)
        self.size += len(piece)
        self._bodies.size += len(piece)
        if self._bodies.size > self._bodies.bytes_max:
            raise Unavailable("answers of this server that are being sent take all its room")

    def clear(self) -> None:
        """It is of no use."""
        self.pieces.clear()
        self._bodies.size -= self.size
        self.size = 0

    def __del__(self) -> None:
        self._bodies.size -= self.size


class Bodies:
    """See the module."""

    def __init__(
        self, *, bytes_max: int = BYTES_MAX, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.bytes_max = bytes_max
        self.size = 0
        self._now_s = now_s
        self._kept: WeakSet[Body] = WeakSet()

    async def body(
        self, what: Hashable, state: Hashable, make: Callable[[], AsyncIterator[bytes]]
    ) -> Body:
        """The answer to `what` in this `state`: one that is being made or sent, or a new one.

        `make` gives its parts, however small. Raises Unavailable, and what `make` raises.
        """
        found = self._found(what, state)
        if found is None:
            found = Body(self, what, state, self._now_s())
            self._kept.add(found)
            found.made = asyncio.create_task(_fill(found, make()), name="rows")
            found.made.add_done_callback(lambda made: made.cancelled() or made.exception())
        try:
            await asyncio.shield(found.made)  # others may wait for it, too
        except Exception:
            self._kept.discard(found)
            raise
        return found

    def _found(self, what: Hashable, state: Hashable) -> Body | None:
        same = [body for body in self._kept if body.what == what]
        for body in same:
            if body.state == state:
                return body
        newest = max(same, key=lambda body: body.at_s, default=None)
        if newest is None or len(same) < SAME_MAX or self._now_s() - newest.at_s > FRESH_S:
            return None
        return newest


async def _fill(body: Body, parts: AsyncIterator[bytes]) -> None:
    held: list[bytes] = []
    size = 0
    try:
        async for part in parts:
            held.append(part)
            size += len(part)
            if size >= PIECE_BYTES:
                body.add(b"".join(held))
                held, size = [], 0
        body.add(b"".join(held))
    except BaseException:
        body.clear()
        raise


class BodyResponse(Response):
    """Sends a body of JSON piece by piece, as its client reads."""

    def __init__(self, body: Body, headers: Mapping[str, str]) -> None:
        super().__init__(headers=headers, media_type="application/json")
        self._body = body
        self.headers["content-length"] = str(body.size)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive  # the answer is known already
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for piece in self._body.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
