"""The answer that does not end: a Starlette response whose body is written straight to the connection (`open_streams`)."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from edgewake.cloud.access import sse
from edgewake.cloud.access.lease_reports import LeaseReport
from edgewake.cloud.access.metrics import Metrics
from edgewake.cloud.access.open_streams import OpenStream, OpenStreams
from edgewake.cloud.access.session import Session
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.subscription import Plan, Start

HEADERS = (
    (b"content-type", sse.CONTENT_TYPE),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)

CURSOR_HEADER_MAX: Final = 4096
"""Characters of a cursor that is also told in a header: clients bound an answer's head, Node's at 16 KB. The first block has it anyway."""


class EventStream(Response):
    """Serves one session until it, its view or the server ends, or the client leaves. Owns stream, session and plan from the call on."""

    media_type = "text/event-stream"

    def __init__(
        self,
        stream: OpenStream,
        session: Session,
        start: Start,
        plan: Plan,
        *,
        hub: Hub,
        streams: OpenStreams,
        metrics: Metrics,
        lease: LeaseReport | None = None,
    ) -> None:
        """`lease`: what is reported to the push proxies while the stream is open."""
        self.status_code = 200
        self.background = None
        self.raw_headers = [
            *HEADERS,
            (b"edgewake-start", start.how.encode()),
            (b"edgewake-heartbeat", b"%g" % stream.heartbeat_s),
        ]
        cursor = session.cursor().encode()
        if len(cursor) <= CURSOR_HEADER_MAX:
            self.raw_headers.append((b"edgewake-cursor", cursor))
        self._stream, self._session, self._start, self._plan = stream, session, start, plan
        self._hub, self._streams, self._metrics = hub, streams, metrics
        self._lease = lease

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                self._count()
                if self._lease is not None:
                    self._lease.start()
                self._stream.start(self._session, retry_ms=self._streams.retry_ms())
                await self._stream.ended
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self.discard()
            self._metrics.ended.labels(self._why()).inc()

    def discard(self) -> None:
        """Leave nothing behind; also of an answer that is never sent."""
        if not self._stream.is_closed:
            if self._lease is not None:
                self._lease.end()
            self._session.close()
            self._stream.close()
            self._hub.close(self._plan)

    def _why(self) -> str:
        if self._stream.is_stalled:
            return "stalled"
        if self._session.has_failed:
            return "failed"
        if self._stream.lost.done():
            return "left"
        return "drained" if self._streams.draining else "ended"

    def _count(self) -> None:
        self._metrics.started.labels(self._start.how).inc()
        for gap in self._start.gaps:
            self._metrics.gaps.labels(gap.event.fields["reason"]).inc()


class Later(Response):
    """For a browser's EventSource, which any other status than 200 stops for ever: come again after `retry_ms`."""

    def __init__(self, retry_ms: int) -> None:
        super().__init__(sse.retry(retry_ms) + b"\n", 200, media_type="text/event-stream")
        self.headers["Cache-Control"] = "no-store"
        self.headers["Edgewake-Start"] = "later"
