"""Encodes batches as `text/event-stream`: the one place that knows the format (WHATWG HTML 9.2).

Lines end in LF, ids are ASCII, an event is always whole. A comment is `:` and one line end, because
some clients take a comment with a blank line for an event; `retry` has no blank line either and
travels with the block after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from edgewake.cloud.access.connection import http_chunk
from edgewake.cloud.log.decode import Event
from edgewake.cloud.log.filters.filter_check import FilterWarning
from edgewake.cloud.log.reader import Batch
from edgewake.cloud.log.subscription import Gap, Plan, Positions
from edgewake.cloud.traces.events import EventTraces, Traced
from edgewake.protocol.cursor import CursorCodec, CursorWriter

HEARTBEAT: Final = b":\n"
CACHE_CONTROL: Final = "no-store, no-transform"
"""No-transform: a proxy that compresses would hold events back until it has enough of them (RFC
9111, 5.2.2.6)."""
CONTENT_TYPE: Final = b"text/event-stream"
PROBLEM: Final = "problem"
"""Name of the event that says why a stream ends. Not `error`, which EventSource uses for a lost
connection."""


class Encoder:
    """Encodes what one plan shows."""

    name = "sse"

    def __init__(self, codec: CursorCodec, plan: Plan, traces: EventTraces | None = None) -> None:
        self._codec = codec
        self._plan = plan
        self._traces = traces
        everywhere = tuple(((2**31, 0),) * source.partitions for source in plan.sources)
        self.event_bytes = len(block(Event("", {}, b""), self.cursor(everywhere).encode()))

    def cursor(self, positions: Positions) -> str:
        """The cursor of these positions."""
        return self._codec.encode(self._plan.cursor(positions))

    def encode(self, batch: Batch) -> tuple[bytes, int]:
        """The events of a batch, each with its id, as a chunk of an HTTP body; and its bytes."""
        framed = http_chunk(self.events(batch))
        return framed, len(framed)

    def events(self, batch: Batch) -> bytes:
        """The events of a batch, each with its id."""
        writer = CursorWriter(self._codec, self._plan.cursor(batch.start))
        parts = []
        traces, spans = self._traces, dict[Traced, bytes]()
        for step in batch.steps:
            writer.move(step.stream, step.partition, step.position)
            if traces is not None and (traced := step.event.trace) is not None:
                spans[traced] = spans.get(traced) or traces.sent(traced, self.name)
                parts.append(trace(spans[traced]))
            parts.append(block(step.event, writer.text()))
        return b"".join(parts)

    def checkpoint(self, positions: Positions, *, as_event: bool) -> bytes:
        """Announce a cursor without an event.

        It is a lone id, or with `as_event` an event, for clients that ignore lone ids.
        """
        cursor = self.cursor(positions)
        if not as_event:
            return b"id: %b\n\n" % cursor.encode()
        return block(Event("checkpoint", {}, orjson.dumps({"cursor": cursor})), cursor.encode())

    def gap(self, gap: Gap) -> bytes:
        """A gap, with the cursor from which its client goes on."""
        return block(gap.event, self._codec.encode(gap.cursor).encode())


def warning(found: FilterWarning) -> bytes:
    """What its client can hardly have meant. It has no id: nothing moved."""
    facts = {"code": found.code, "detail": found.detail} | (
        {"field": found.field, "near": found.near} if found.field else {}
    )
    return b"event: warning\ndata: %b\n\n" % orjson.dumps(facts)


def problem(code: str, detail: str) -> bytes:
    """Why the stream ends here. It has no id: the client keeps its cursor."""
    return b"event: %b\ndata: %b\n\n" % (
        PROBLEM.encode(),
        orjson.dumps({"code": code, "detail": detail}),
    )


def end(why: str, **facts: Any) -> bytes:
    """Announce that the reader may read no longer, `expired` or `revoked`, or is too `slow`.

    It has no id: the client keeps its cursor and goes on with it once it has authenticated again,
    or can take more.
    """
    return b"event: end\ndata: %b\n\n" % orjson.dumps({"reason": why, **facts})


def ended_by_operator(reason: str) -> bytes:
    """Announce that an operator ended this stream.

    It has no id: the client keeps its cursor, and may come again after `retry`.
    """
    facts = {"reason": "operator", "detail": reason or "an operator ended this stream"}
    return b"event: end\ndata: %b\n\n" % orjson.dumps(facts)


def block(event: Event, cursor: bytes) -> bytes:
    """One event. Its data is JSON in one line: neither CR nor LF can be in it."""
    if event.kind:
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (cursor, event.kind.encode(), event.data)
    return b"id: %b\ndata: %b\n\n" % (cursor, event.data)


def trace(traceparent: bytes) -> bytes:
    """A comment before an event that is traced: the parent of what its reader does with it."""
    return b": traceparent=%b\n" % traceparent


def heartbeat_event(at_ms: int) -> bytes:
    """A sign of life that a browser's EventSource can see. It has no id: nothing moved."""
    return b'event: heartbeat\ndata: {"at":%d}\n\n' % at_ms


def behind(facts: Mapping[str, Any]) -> bytes:
    """How far a client that reads slowly is behind, and what is done about it.

    It has no id: nothing moved.
    """
    return b"event: behind\ndata: %b\n\n" % orjson.dumps(facts)


def conflated(superseded: int) -> bytes:
    """The number of events that conflation replaced since this event was last sent.

    It has no id: the event sent before it holds the reader's cursor.
    """
    return b'event: conflated\ndata: {"superseded":%d}\n\n' % superseded


def retry(ms: int) -> bytes:
    """The wait of a client that loses the connection."""
    return b"retry: %d\n" % ms
