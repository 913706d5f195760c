"""Live events of operations in a bounded ring, which clients read at their own pace.

Nothing is queued for a client. Event ids are `<boot>-<number>`. After another boot, or when the
ring has overwritten what a client missed, it gets a `gap` event and reads the lists again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

import orjson
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Receive, Scope, Send

from edgewake.cloud.client_share import Bound, Held
from edgewake.cloud.ops.tables.device_table import Event
from edgewake.cloud.ops.tables.past import Past
from edgewake.cloud.web.http_part import Problem

RING_EVENTS: Final = 2000
"""The events held for clients that lag or reconnect."""
CLIENTS_MAX: Final = 100
BATCH: Final = 200
SEND_TIMEOUT_S: Final = 20.0
"""Seconds after which a client that reads nothing is disconnected."""
PING_S: Final = 15
RIGHT_S: Final = 0.5
"""Seconds between checks of a client's right: a removed key is noticed within a second, and its
streams end within two."""
HOLDER_SHARE: Final = 0.5
"""The share of CLIENTS_MAX that one holder of a key may use."""


class _Live(EventSourceResponse):
    """Calls `on_end` when the response ends, even if its stream never began."""

    def __init__(self, *args: Any, on_end: Callable[[], None], **more: Any) -> None:
        super().__init__(*args, **more)
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


def _why(ended: Problem | None) -> str:
    """What a client is told whose right has ended."""
    reason = {"key_expired": "expired", "key_revoked": "revoked"}.get(ended.code if ended else "")
    told = {
        "reason": reason or "right",
        "advice": "the key or session is no longer valid: log in again",
    }
    return orjson.dumps(told).decode()


class EventRing:
    """The ring of live events."""

    def __init__(self, boot: str, past: Past | None = None) -> None:
        """Every published event is also noted in `past`."""
        self._boot, self._past = boot, past
        self._ring: deque[tuple[int, bytes]] = deque(maxlen=RING_EVENTS)
        self._next = 1
        self._news = asyncio.Event()
        self._clients = Held(Bound("live streams", CLIENTS_MAX, HOLDER_SHARE))
        self._closed = False

    def publish(self, events: Iterable[Event]) -> None:
        """Adds events and notifies clients."""
        events = list(events)
        if self._past is not None:
            self._past.note(events)
        for event in events:
            self._ring.append((self._next, orjson.dumps(event)))
            self._next += 1
        self._notify()

    def close(self) -> None:
        """Ends all streams."""
        self._closed = True
        self._notify()

    def _notify(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def response(
        self,
        last_event_id: str | None,
        *,
        holder: str = "",
        is_allowed: Callable[[], bool] = lambda: True,
        ended: Callable[[], Problem | None] = lambda: None,
    ) -> EventSourceResponse:
        """Streams to a client as long as `is_allowed` holds; `ended` says then why it does not.

        Raises Problem at CLIENTS_MAX.
        """
        refused = self._clients.take(holder)
        if refused is not None:
            raise Problem(503, "too_many_clients", refused, headers={"Retry-After": "10"})
        return _Live(
            self._stream(last_event_id, is_allowed, ended),
            on_end=lambda: self._clients.give_back(holder),
            ping=PING_S,
            ping_message_factory=lambda: ServerSentEvent(comment=""),
            send_timeout=SEND_TIMEOUT_S,
            headers={"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"},
            sep="\n",
        )

    async def _stream(
        self,
        last_event_id: str | None,
        is_allowed: Callable[[], bool] = lambda: True,
        ended: Callable[[], Problem | None] = lambda: None,
    ) -> AsyncIterator[ServerSentEvent]:
        at, known = self._start(last_event_id)
        if not known:
            yield self._gap(at)
        yield ServerSentEvent(comment="live", id=self._id(at - 1))
        while not self._closed and is_allowed():
            news = self._news
            if at < self._first():
                at = self._first()
                yield self._gap(at)
            batch = self._from(at)
            for number, data in batch:
                yield ServerSentEvent(data=data.decode(), id=self._id(number))
                at = number + 1
            if not batch:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RIGHT_S):
                        await news.wait()
        if not self._closed:
            yield ServerSentEvent(event="ended", data=_why(ended()))

    def _start(self, last_event_id: str | None) -> tuple[int, bool]:
        """Returns the first event to send, and whether the id could be resumed."""
        if last_event_id is None:
            return self._next, True
        boot, _, number = last_event_id.partition("-")
        if (
            boot == self._boot
            and number.isascii()
            and number.isdigit()
            and self._first() <= int(number) + 1 <= self._next
        ):
            return int(number) + 1, True
        return self._next, False

    def _first(self) -> int:
        return self._next - len(self._ring)

    def _from(self, at: int) -> list[tuple[int, bytes]]:
        skip = at - self._first()
        return [self._ring[i] for i in range(skip, min(len(self._ring), skip + BATCH))]

    def _gap(self, at: int) -> ServerSentEvent:
        return ServerSentEvent(
            event="gap",
            data='{"reason":"behind","advice":"read the lists again"}',
            id=self._id(at - 1),
        )

    def _id(self, number: int) -> str:
        return f"{self._boot}-{number}"
