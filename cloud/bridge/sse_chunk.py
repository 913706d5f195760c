"""A chunk of a feed, gathered from the lines of an event stream of an access server. Pure."""

from __future__ import annotations

from typing import Any, Final

import orjson

from edgewake.protocol.downlink.downlink import MESSAGE_BYTES_MAX
from edgewake.protocol.downlink.feed import CHUNK_BYTES, FeedAsk, FeedChunk

ROOM_BYTES: Final = MESSAGE_BYTES_MAX - 16 * 1024
"""Bytes of events that a chunk may have at most: the rest is for gaps, cursors and names."""
GAPS_MAX: Final = 64
"""Gaps in a chunk: one for each partition that was left behind. More are joined into the last
one."""
RETRY_S: Final = 5.0
"""A stream that ends with a problem is asked for again after that."""


SHOWN_OF_GAPS: Final = (
    "scope",
    "reason",
    "lost",
    "stream",
    "streams",
    "device",
    "partition",
    "epoch",
    "seq",
    "from",
    "earliest",
)
"""What a gap says of what is lost."""


class Gathering:
    """Lines in, a chunk out: of events, or of gaps, so that a gap stands where it is.

    An event too large for a message is a gap.
    """

    def __init__(self, ask: FeedAsk) -> None:
        self._ask = ask
        self._cursor = ask.after
        self._events: list[dict[str, Any]] = []
        self._gaps: list[dict[str, Any]] = []
        self._bytes = 0
        self._is_over = False
        """What follows belongs into the next chunk."""
        self._error = ""
        self._block: dict[str, str] = {}

    @property
    def has_something(self) -> bool:
        """Is there anything that the device should know soon?

        Its first cursor is: it says where the feed began.
        """
        return bool(self._events or self._gaps or self._error) or (
            not self._ask.after and self._cursor != ""
        )

    @property
    def is_full(self) -> bool:
        """No more into this chunk."""
        return (
            self._is_over
            or self._bytes >= CHUNK_BYTES
            or len(self._gaps) >= GAPS_MAX
            or self._error != ""
        )

    def line(self, line: str) -> None:
        """One line, without its end. What comes when it is full is left for the next chunk."""
        if line:
            name, _, value = line.partition(":")
            self._block[name] = value.removeprefix(" ")
            return
        block, self._block = self._block, {}
        if "data" in block and not self.is_full:
            self._take(block.get("event", ""), block["data"], block.get("id"))

    def _take(self, kind: str, data: str, cursor: str | None) -> None:
        size = len(data.encode()) if kind == "" else 0
        is_gap = kind == "gap" or size > ROOM_BYTES - CHUNK_BYTES
        self._is_over = bool(self._events) if is_gap else bool(self._gaps) and kind == ""
        if self._is_over:
            return
        if is_gap:
            self._gaps.append(
                _shown(orjson.loads(data)) if kind == "gap" else {"reason": "too_large", "lost": 1}
            )
        elif kind == "":
            self._events.append(orjson.loads(data))
            self._bytes += size
        elif kind == "problem":
            self._error = str(orjson.loads(data).get("detail", ""))[:1000] or "the stream ended"
        self._cursor = cursor or self._cursor

    def chunk(self) -> FeedChunk:
        """What was gathered; an error only where there is nothing else."""
        error = "" if self._events or self._gaps else self._error
        return FeedChunk(
            feed=self._ask.feed, after=self._ask.after, cursor=self._cursor,
            events=tuple(self._events), gaps=tuple(self._gaps),
            error=error, retry_s=RETRY_S if error else 0.0,
        )  # fmt: skip


def _shown(gap: dict[str, Any]) -> dict[str, Any]:
    return {name: gap[name] for name in SHOWN_OF_GAPS if gap.get(name) is not None}
