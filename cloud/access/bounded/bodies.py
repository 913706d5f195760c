"""Answers of many rows, made once for all who ask for the same at the same time, and bounded.

    bytes_max   of all that are being made or sent, one that several are sent counted once; one more
                is refused with 503
    share       of one client: a part of bytes_max, and one answer in any case; what it is sent
                counts for it in full, also where others are sent the same; over it: 503
    least pace  GRACE_S seconds, and one more for each TAKE_BYTES_PER_S bytes taken; who takes less,
                or nothing for `stall_s`, is cut off
    SAME_MAX    different states of one answer that are being sent: who asks then is given the
                newest, where that is FRESH_S old at most, for its cursor goes on from exactly it

A body is kept as long as somebody is sent it, and no longer; one that nobody waits for any more is
not made to its end. One event loop uses it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from functools import partial
from typing import Final
from weakref import WeakSet

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from edgewake.cloud.access.config import ANSWER_BYTES_MAX
from edgewake.cloud.access.connection import connection_of
from edgewake.cloud.client_share import SHARE_DEFAULT, Bound
from edgewake.cloud.log.hub_bounds import Full

log = logging.getLogger("edgewake.access")

PIECE_BYTES: Final = 64 * 1024
"""Bytes that are given to a connection at once: what it holds while its client reads."""
SAME_MAX: Final = 3
FRESH_S: Final = 1.0
TAKE_BYTES_PER_S: Final = 32 * 1024
"""The pace, in bytes a second, that keeps an answer in memory: 256 kbit/s. Over a slower link there
are pages (`limit`)."""
GRACE_S: Final = 30.0
"""Seconds that any client has before that: a megabyte over 256 kbit/s."""
STALL_S: Final = 30.0
"""Seconds in which a client takes something, as `AccessConfig.stall_s` of streams."""
ADVICE: Final = "read what you are being sent first, or ask for pages (limit)"


class Body:
    """An answer, in pieces. `made` is done when all are there."""

    def __init__(self, bodies: Bodies, what: Hashable, state: Hashable, at_s: float) -> None:
        self.what, self.state, self.at_s = what, state, at_s
        self.pieces: list[bytes] = []
        self.made: asyncio.Task[None] | None = None
        """What makes it; None: it was there."""
        self.size = 0
        self.takers: Counter[str] = Counter()
        """Clients that wait for it or are sent it, each as often."""
        self._bodies = bodies

    def add(self, piece: bytes) -> None:
        """The next piece. Raises Full where there is no room for it with any of its takers."""
        self.pieces.append(piece)
        self.size += len(piece)
        self._bodies.size += len(piece)
        why = "nobody waits for it any more"
        for client in self.takers:
            refused = self._bodies.refusal(client)
            if refused is None:
                return
            why = refused
        raise Full(why)

    def clear(self) -> None:
        """It is of no use."""
        self.pieces.clear()
        self._bodies.size -= self.size
        self.size = 0

    def __del__(self) -> None:
        self._bodies.size -= self.size


class Taken:
    """A body that one client waits for or is sent. It counts for the client until `close`."""

    def __init__(self, body: Body, client: str, bodies: Bodies) -> None:
        self.body = body
        self.bodies = bodies
        self._client = client
        self._is_closed = False
        body.takers[client] += 1
        bodies.of.setdefault(client, set()).add(body)

    def close(self) -> None:
        """The client has it, or wants it no more."""
        if self._is_closed:
            return
        self._is_closed = True
        takers, of = self.body.takers, self.bodies.of
        takers[self._client] -= 1
        if takers[self._client] > 0:
            return
        del takers[self._client]
        of[self._client].discard(self.body)
        if not of[self._client]:
            del of[self._client]
        if not takers:
            self.bodies.give_up(self.body)

    def __del__(self) -> None:
        self.close()


class Bodies:
    """Makes each answer once for all who ask for it, within a bound of bytes."""

    def __init__(
        self,
        *,
        bytes_max: int = ANSWER_BYTES_MAX,
        share: float = SHARE_DEFAULT,
        stall_s: float = STALL_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`share`: the part of `bytes_max` that one client may hold."""
        self._bound = Bound("bytes of answers that are being sent", bytes_max, share)
        self.size = 0
        self.cut = 0
        """Clients that were cut off because they took theirs too slowly."""
        self.of: dict[str, set[Body]] = {}
        """What each client holds."""
        self.stall_s = stall_s
        self._now_s = now_s
        self._kept: WeakSet[Body] = WeakSet()

    async def body(
        self,
        what: Hashable,
        state: Hashable,
        make: Callable[[], AsyncIterator[bytes]],
        *,
        client: str,
    ) -> Taken:
        """The answer to `what` in this `state`: one that is being made or sent, or a new one.

        `make` gives its parts, however small. Raises Full, and what `make` raises.
        """
        found = self._found(what, state)
        if found is None:
            self._check_one_more(client)
            found = Body(self, what, state, self._now_s())
            found.made = asyncio.create_task(_fill(found, make()), name="rows")
            found.made.add_done_callback(partial(self._is_made, found))
            self._kept.add(found)
        taken = Taken(found, client, self)
        try:
            if found.made is not None:
                await asyncio.shield(found.made)  # others may wait for it, too
            if self._held(client) > self._bound.own_max and (why := self.refusal(client)):
                raise Full(why)
        except BaseException:
            taken.close()
            raise
        return taken

    def whole(self, text: bytes) -> Body:
        """An answer that is there already, for any number of clients that `take` it."""
        body = Body(self, None, None, self._now_s())
        body.pieces = [text[at : at + PIECE_BYTES] for at in range(0, len(text), PIECE_BYTES)]
        body.size = len(text)
        self.size += len(text)
        return body

    def take(self, body: Body, *, client: str) -> Taken:
        """An answer that is there already, for this client. Raises Full."""
        self._check_one_more(client)
        return Taken(body, client, self)

    def refusal(self, client: str) -> str | None:
        """Why a client gets not a byte more of what it waits for; None where it does."""
        held = self._held(client)
        if len(self.of.get(client, ())) == 1:  # one answer is let through however large it is
            held = min(held, self._bound.own_max - 1)
        return self._refusal(held)

    def give_up(self, body: Body) -> None:
        """Nobody waits for it or is sent it."""
        if body.made is not None and not body.made.done():
            self._kept.discard(body)  # who asks from now on is given another one
            body.made.cancel()

    def _is_made(self, body: Body, made: asyncio.Task[None]) -> None:
        if made.cancelled() or made.exception() is not None:
            self._kept.discard(body)

    def _held(self, client: str) -> int:
        return sum(body.size for body in self.of.get(client, ()))

    def _refusal(self, held: int) -> str | None:
        why = self._bound.refusal(total=self.size, held=held)
        return None if why is None else f"{why}: {ADVICE}"

    def _check_one_more(self, client: str) -> None:
        why = self._refusal(self._held(client))
        if why is not None:
            raise Full(why)

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
    """Sends a body piece by piece, as its client reads; who reads too slowly is cut off."""

    def __init__(
        self, taken: Taken, headers: Mapping[str, str], media_type: str = "application/json"
    ) -> None:
        super().__init__(headers=headers, media_type=media_type)
        self._taken = taken
        self.headers["content-length"] = str(taken.body.size)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._send(send, is_head=scope["method"] == "HEAD")
        except TimeoutError:
            self._taken.bodies.cut += 1
            log.info(
                "a client takes an answer of %d bytes too slowly: cut off",
                self._taken.body.size,
                extra={"event": "answer.cut"},
            )
            connection_of(scope).abort()
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            self._taken.close()

    async def _send(self, send: Send, *, is_head: bool) -> None:
        """Raises TimeoutError where the client is too slow."""
        loop = asyncio.get_running_loop()
        began_s, sent = loop.time(), 0
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        pieces = [] if is_head else self._taken.body.pieces
        for number, piece in enumerate(pieces or [b""], 1):
            due_s = due(began_s, sent, loop.time(), stall_s=self._taken.bodies.stall_s)
            more = number < len(pieces)
            async with asyncio.timeout_at(due_s):
                await send({"type": "http.response.body", "body": piece, "more_body": more})
            sent += len(piece)


def due(began_s: float, sent: int, now_s: float, *, stall_s: float) -> float:
    """When a client that was given `sent` bytes since `began_s` has to have room for more. Pure."""
    return min(now_s + stall_s, began_s + GRACE_S + sent / TAKE_BYTES_PER_S)
