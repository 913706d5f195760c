"""Carries feed requests out and chunks in, between following sources and the connection.

It keeps nothing. A chunk is confirmed to the broker by the source that asked for it, when it is
durable. One that no source waits for was asked for twice, or before the connection was lost, and is
confirmed and dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from edgewake.protocol.downlink.downlink import EXPIRES_S_MAX, FEED_WAIT_S
from edgewake.protocol.errors import Rejected

if TYPE_CHECKING:
    from edgewake.protocol.downlink.feed import FeedAsk, FeedChunk

log = logging.getLogger("edgewake.downlink")

ANSWER_S: Final = 2 * FEED_WAIT_S
"""Seconds after which a question is asked again: it, or its answer, was lost."""
OFFLINE_S: Final = 5.0
"""The wait without a connection; a new connection ends it at once."""
SUCCESS, BAD_PAYLOAD = 0x00, 0x99
"""Reason codes of a PUBACK."""
assert EXPIRES_S_MAX > ANSWER_S

Acknowledge = Callable[[int], None]
Got: TypeAlias = "tuple[FeedChunk, Acknowledge]"


class Feeds:
    """The feeds of one device."""

    def __init__(self) -> None:
        self.send: Callable[[bytes], bool] = lambda _payload: False
        """Publishes a question; False without a connection."""
        self._waiting: dict[str, tuple[str, asyncio.Future[Got | None]]] = {}
        """By feed: the cursor of the request, and the future that waits for the answer."""

    async def ask(self, ask: FeedAsk) -> Got | None:
        """The chunk and its confirmation; None: it did not come, ask again."""
        got: asyncio.Future[Got | None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting[ask.feed] = ask.after, got
        is_sent = self.send(ask.to_json())
        try:
            async with asyncio.timeout(ANSWER_S if is_sent else OFFLINE_S):
                return await got
        except TimeoutError:
            return None
        finally:
            # Else it was asked again meanwhile, and that one still waits.
            if self._waiting.get(ask.feed) is waiting:
                del self._waiting[ask.feed]

    def take(self, payload: bytes, acknowledge: Acknowledge) -> None:
        """A chunk came."""
        # A device pays for it when it follows somebody.
        from edgewake.protocol.downlink.feed import FeedChunk, decode

        try:
            chunk = decode(FeedChunk, payload)
        except Rejected as error:
            log.warning("a chunk of a feed is refused: %s", error, extra={"event": "feed.refused"})
            acknowledge(BAD_PAYLOAD)
            return
        after, got = self._waiting.get(chunk.feed, ("", None))
        if got is None or got.done() or after != chunk.after:
            acknowledge(SUCCESS)
            return
        got.set_result((chunk, acknowledge))

    def connected(self) -> None:
        """There is a connection now: what was asked on the one before is asked again."""
        for _, got in self._waiting.values():
            if not got.done():
                got.set_result(None)
