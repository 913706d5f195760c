"""Events as messages of a WebSocket: the one place that knows what the server says. Pure.

A message is one text frame with one JSON object; `type` says which:

    subscribed   id, cursor, start, credits     it is open, and begins at `cursor`
    events       id, events, superseded         a list of {"cursor", "data"}, and with {"event"}
                                                where it is a gap or a watermark, not a reading; how
                                                many events later ones took the place of, where
                                                there were some
    gap          id, cursor, data               what of the range behind `cursor` is lost
    checkpoint   id, cursor                     it has come so far without an event to show
    changed      id, cursor                     the new filter holds from here
    behind       id, records, seconds, policy   how far it is behind the newest (also as a number of
                                                `events`), and what is done about it when (`acts_in`
                                                seconds)
    acked        id, cursor                     the kept cursor stands here
    warning      id, code, detail               what a filter can hardly mean
    end          id, reason, cursor             it is over; go on from `cursor`, here or elsewhere
    heartbeat    at                             nothing happened; ms since 1970
    problem      code, detail, where, expected  what is wrong with what was said

A frame of a server has no mask (RFC 6455, 5.1), so the events of a chunk are encoded once and
copied into the frames of all who stand at the same place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from edgewake.cloud.log.decode import Event
from edgewake.cloud.log.reader import Batch
from edgewake.cloud.log.subscription import Plan, Positions
from edgewake.protocol.cursor import CursorCodec, CursorWriter

NAME: Final = "ws"
"""The name of the encoding."""
EVENT_BYTES: Final = 160
"""Memory of an event beside its text: its place and where it ends."""
_TEXT_FRAME: Final = 0x81
"""FIN and the opcode of text (RFC 6455, 5.2)."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The events of a chunk: their texts, joined by commas, and where each ends."""

    text: bytes
    ends: Sequence[int]
    places: Sequence[tuple[int, int, tuple[int, int]]]
    """(stream, partition, position after it) of each."""

    def part(self, first: int, last: int) -> bytes:
        """The texts of events `first` to `last` (exclusive), joined by commas."""
        begin = 0 if first == 0 else self.ends[first - 1] + 1
        return self.text[begin : self.ends[last - 1]]

    def positions(self, start: Positions, passed: int) -> Positions:
        """Where a reader stands that began at `start` and has `passed` of the events."""
        rows = [list(row) for row in start]
        for stream, partition, position in self.places[:passed]:
            rows[stream][partition] = position
        return tuple(map(tuple, rows))


class Encoder:
    """Encodes what one plan shows."""

    name = NAME

    def __init__(self, codec: CursorCodec, plan: Plan) -> None:
        self._codec = codec
        self._plan = plan
        everywhere = tuple(((2**31, 0),) * source.partitions for source in plan.sources)
        self.event_bytes = len(_event(Event("", {}, b""), self.cursor(everywhere)))

    def cursor(self, positions: Positions) -> str:
        """The cursor of these positions."""
        return self._codec.encode(self._plan.cursor(positions))

    def encode(self, batch: Batch) -> tuple[Shown, int]:
        """The events of a batch, each with its cursor; and their memory in bytes."""
        writer = CursorWriter(self._codec, self._plan.cursor(batch.start))
        texts: list[bytes] = []
        ends: list[int] = []
        end = -1
        for step in batch.steps:
            writer.move(step.stream, step.partition, step.position)
            texts.append(_event(step.event, writer.text().decode()))
            end += 1 + len(texts[-1])
            ends.append(end)
        places = [(step.stream, step.partition, step.position) for step in batch.steps]
        shown = Shown(b",".join(texts), ends, places)
        return shown, len(shown.text) + EVENT_BYTES * len(texts)


def _event(event: Event, cursor: str) -> bytes:
    kind = b'"event":%b,' % orjson.dumps(event.kind) if event.kind else b""
    return b'{"cursor":"%b",%b"data":%b}' % (cursor.encode(), kind, event.data)


def events(name: str, texts: bytes, superseded: int = 0) -> bytes:
    """The frame of these events, for the subscription that its client calls `name`."""
    head = b'{"type":"events","id":%b,"events":[' % orjson.dumps(name)
    return text_frame(head, texts, b'],"superseded":%d}' % superseded if superseded else b"]}")


def message(kind: str, **facts: Any) -> bytes:
    """The frame of any other message; facts that are None are left out."""
    said = {name: value for name, value in facts.items() if value is not None}
    return text_frame(orjson.dumps({"type": kind, **said}))


def text_frame(*parts: bytes) -> bytes:
    """A whole text message as a server sends it: one frame without a mask."""
    size = sum(map(len, parts))
    if size < 126:
        head = bytes((_TEXT_FRAME, size))
    elif size < 2**16:
        head = bytes((_TEXT_FRAME, 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((_TEXT_FRAME, 127)) + size.to_bytes(8, "big")
    return b"".join((head, *parts))
