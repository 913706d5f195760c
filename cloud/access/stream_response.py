"""The endless answer: a Starlette response whose body is written straight to the connection.

`open_streams` writes it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from edgewake.cloud.access import sse
from edgewake.cloud.access.connection import Answer, answer_of
from edgewake.cloud.access.metrics import Metrics
from edgewake.cloud.access.open_streams import OPEN_S, OpenStream, OpenStreams
from edgewake.cloud.access.reports.lease_reports import LeaseReport
from edgewake.cloud.access.session import Session
from edgewake.cloud.log.catalogue import UnknownStream
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.request import RequestError
from edgewake.cloud.log.subscription import Plan, Start
from edgewake.protocol.errors import CursorError, FilterError, Unavailable

log = logging.getLogger("edgewake.access")

HEADERS = (
    (b"content-type", sse.CONTENT_TYPE),
    (b"cache-control", sse.CACHE_CONTROL.encode()),
    (b"x-accel-buffering", b"no"),
)

ABSENT_LOOK_S: Final = 0.5
"""How often an awaited stream is looked up; the catalogue knows it a second after it was
created."""
CURSOR_HEADER_MAX: Final = 4096
"""Characters of a cursor that is also sent in a header: clients bound an answer's head, Node's at
16 KB. The first block has it anyway."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A subscription that is being read: its plan is open, and its session stands at the start."""

    plan: Plan
    start: Start
    session: Session


class Opener(Protocol):
    """Opens subscriptions for one client."""

    def arrived(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Which of these streams are there now."""

    async def open(
        self, names: tuple[str, ...], *, cursor: str | None, has_waited: bool = False
    ) -> Opened | None:
        """Open these of the client's streams, at `cursor` where there is one.

        What it has waited for begins at its first record.

        Raises UnknownStream, Full, Unavailable, RequestError, FilterError or CursorError.
        """


class EventStream(Response):
    """Serves a client until its session, its view or the server ends, or the client leaves.

    Owns stream, session and plan from the call on.

    Streams that are not there yet are waited for: when one comes the client goes on with it and
    what it reads already, from its cursor.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        stream: OpenStream,
        opened: Opened | None,
        *,
        absent: tuple[str, ...] = (),
        opener: Opener,
        hub: Hub,
        streams: OpenStreams,
        metrics: Metrics,
        lease: LeaseReport | None = None,
    ) -> None:
        """`opened`: None where none of the streams exists yet; `absent`: the streams it waits for.

        `lease`: what is reported to the push proxies while the stream is open.
        """
        self.status_code = 200
        self.background = None
        self.raw_headers = [
            *HEADERS,
            (b"edgewake-start", (opened.start.how if opened is not None else "waiting").encode()),
            (b"edgewake-heartbeat", b"%g" % stream.heartbeat_s),
        ]
        cursor = b"" if opened is None else opened.session.cursor().encode()
        if 0 < len(cursor) <= CURSOR_HEADER_MAX:
            self.raw_headers.append((b"edgewake-cursor", cursor))
        self._stream, self._opened, self._absent, self._opener = stream, opened, absent, opener
        self._hub, self._streams, self._metrics = hub, streams, metrics
        self._lease = lease
        self._waiting: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Begin it; it goes on when this has returned."""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                self._end()
            else:
                self._begin(answer_of(scope))
        except BaseException:
            self._end()
            raise

    def _begin(self, answer: Answer) -> None:
        if self._lease is not None:
            self._lease.start()
        if self._opened is not None:
            self._start(self._opened)
        else:
            self._stream.wait(retry_ms=self._streams.retry_ms())
        if self._absent:
            self._waiting = asyncio.create_task(self._wait_for_absent(), name="absent-streams")

        def end(_: object) -> None:
            answer.end()
            self._end()

        answer.outlives_handler()
        self._stream.ended.add_done_callback(end)

    def _end(self) -> None:
        self.discard()
        self._metrics.ended.labels(self._why()).inc()

    def discard(self) -> None:
        """Leave nothing behind; also of an answer that is never sent."""
        if not self._stream.is_closed:
            if self._waiting is not None:
                self._waiting.cancel()
            if self._lease is not None:
                self._lease.end()
            self._stream.close()
            if self._opened is not None:
                self._close(self._opened)

    def _start(self, opened: Opened) -> None:
        self._opened = opened
        self._metrics.started.labels(opened.start.how).inc()
        for gap in opened.start.gaps:
            self._metrics.gaps.labels(gap.event.fields["reason"]).inc()
        self._stream.start(opened.session, retry_ms=self._streams.retry_ms())

    def _close(self, opened: Opened) -> None:
        opened.session.close()
        self._hub.close(opened.plan)

    async def _wait_for_absent(self) -> None:
        """Until all are there.

        What cannot be opened at the moment is tried again; what never can be ends the stream.
        """
        while self._absent and not self._stream.ended.done():
            await self._streams.clock.sleep(ABSENT_LOOK_S)
            arrived = self._opener.arrived(self._absent)
            if arrived and (self._opened is None or self._opened.session.is_calm):
                await self._try_to_go_on_with(arrived)

    async def _try_to_go_on_with(self, arrived: tuple[str, ...]) -> None:
        try:
            async with asyncio.timeout(OPEN_S):
                opened = await self._opened_with(arrived)
        except (UnknownStream, Unavailable, TimeoutError):
            return
        except (RequestError, FilterError, CursorError) as error:
            self._stream.fail(str(error))
            return
        except Exception as error:  # our own fault: without a word its client would wait for ever
            log.error("absent: %r", error, extra={"event": "http.error"}, exc_info=error)
            self._stream.fail("our fault; the log has it")
            return
        if opened is not None:
            self._absent = tuple(name for name in self._absent if name not in arrived)
            self._start(opened)

    async def _opened_with(self, arrived: tuple[str, ...]) -> Opened | None:
        """What it reads and these streams, open; what it read before is closed then."""
        before = self._opened
        if before is None:
            return await self._opener.open(arrived, cursor=None, has_waited=True)
        names = (*before.plan.subscription.streams, *arrived)
        opened = None
        # Nothing is written meanwhile: what the client has ends at this cursor.
        self._stream.session = None
        try:
            opened = await self._opener.open(names, cursor=before.session.cursor(), has_waited=True)
        finally:
            if opened is not None:
                self._close(before)
            elif not self._stream.is_closed:
                self._stream.resume(before.session)
        return opened

    def _why(self) -> str:
        if self._stream.is_stalled:
            return "stalled"
        if self._stream.is_expelled:
            return "operator"
        if self._stream.has_failed:
            return "failed"
        if self._stream.is_too_slow:
            return "slow"
        if self._stream.lost.done():
            return "left"
        return "drained" if self._streams.draining else "ended"


class Later(Response):
    """Ask a browser's EventSource to come again after `retry_ms`.

    Any other status than 200 would stop it permanently.
    """

    def __init__(self, retry_ms: int) -> None:
        super().__init__(sse.retry(retry_ms) + b"\n", 200, media_type="text/event-stream")
        self.headers["Cache-Control"] = sse.CACHE_CONTROL
        self.headers["Edgewake-Start"] = "later"
