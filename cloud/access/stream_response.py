"""The answer that does not end: a Starlette response that writes a client's chunks, the same bytes object for all clients of a view.

What is written is always whole events. `send` waits while more than WRITE_HIGH_BYTES lie in this connection's buffer, so a client that
does not read is not written to; who takes nothing at all is cut off by `edgewake.cloud.access.clients`.
"""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from edgewake.cloud.access import sse
from edgewake.cloud.access.client import Client
from edgewake.cloud.access.clients import Clients, Seat
from edgewake.cloud.access.connection import connection_of
from edgewake.cloud.access.metrics import Metrics
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.subscription import Plan, Start

HEADERS = (
    (b"content-type", sse.CONTENT_TYPE),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


class EventStream(Response):
    """Streams one client until it, its view or the server ends. Owns the client and the plan from the call on."""

    media_type = "text/event-stream"

    def __init__(self, client: Client, start: Start, plan: Plan, *, hub: Hub, clients: Clients, metrics: Metrics) -> None:
        self.status_code = 200
        self.background = None
        self.raw_headers = [
            *HEADERS,
            (b"edgewake-start", start.how.encode()),
            (b"edgewake-cursor", client.cursor().encode()),
        ]
        self._client, self._start, self._plan = client, start, plan
        self._hub, self._clients, self._metrics = hub, clients, metrics

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        seat = self._clients.sit(self._client, connection_of(scope))
        why = "left"
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                self._count()
                why = await self._stream(seat, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._clients.leave(seat)
            self._hub.close(self._plan)
            self._metrics.ended.labels("stalled" if seat.stalled else why).inc()

    async def _stream(self, seat: Seat, send: Send) -> str:
        chunk: bytes | None = sse.HEARTBEAT + sse.retry(self._clients.retry_ms()) + self._client.first()
        while chunk is not None:
            self._clients.wrote(seat, len(chunk))
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            chunk = await self._client.next()
        if seat.connection is not None and seat.connection.is_lost():
            return "left"
        await send({"type": "http.response.body", "body": sse.retry(self._clients.retry_ms()), "more_body": True})
        return "drained" if self._clients.draining else "ended"

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
