"""The record: a frame as Kafka keeps it, with its origin and its times.

Value (JSON, UTF-8; the frame's own bytes follow the first six keys unchanged):

    {"device":"car-07","stream":"vehicle_position","mode":"ack","sent_at":1790000000100,"received_at":1790000000130,
     "epoch":3,"frame":12,"seq":1101,"t":[…],"fields":{…}}

Where a gateway sent it for a thing behind it (docs/gateways.md), the thing is the device, and
`"via":"gateway"` stands before the frame's own bytes: epoch, frame and seq are then the gateway's,
of this thing and stream, and the clock is the gateway's.

Key: the device. `sent_at` is the device's clock at this attempt (null where unknown), `received_at`
the bridge's. The sequencer puts before them what it found out about these clocks, where there is
something to say:

    "shift":-3600000,          ms to add to every `t`: by so much the device's clock is wrong
    "kept_at":1790000000200,   Kafka's clock when it kept the record, where the bridge's differs by
                               more than a minute; it counts

On `ew.up` the header PLACEMENT_HEADER holds what the sequencer needs to know of the frame, so that
it need not read the value; on `ew.s.*` the header ORIGIN_HEADER names where on `ew.up` it came from
(the ack token's place), and LATE_HEADER marks a frame that came after later ones had passed.
TRACE_HEADERS go along where a frame is traced, from topic to topic (docs/traces.md). A gap record
without origin is the sequencer's own statement; its reason is one of

    open            frames first_frame to frame were not there in time: later ones pass, these may
                    still come, marked late. Count 0
    missing         frames of an open hole that did not come within a day: their readings are lost,
                    and counted
    unknown_before  the sequencer knows nothing of this epoch before the next frame. Count 0: no
                    loss is known
    restarted       a plain device's counter restarted: the next readings are new under numbers
                    that occurred before. Count 0
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple
from zlib import crc32

import orjson

from edgewake.protocol.frames.corrected_time import corrected_ms
from edgewake.protocol.frames.frame import Frame, Gap, Scalar

PLACEMENT_HEADER: Final = "ew"
ORIGIN_HEADER: Final = "up"
LATE_HEADER: Final = "late"
TRACE_HEADERS: Final = ("traceparent", "tracestate")
"""W3C Trace Context, on `ew.up`, `ew.s.*` and `ew.q.*` alike, where a record is traced
(docs/traces.md)."""


class Mode(StrEnum):
    """The delivery modes of a stream."""

    ACK = "ack"
    ONE_WAY = "one_way"


class Discipline(StrEnum):
    """The rules by which the sequencer passes a frame on once and in order."""

    # numbered from 1 without holes (agents): repeats dropped, early frames held until their turn
    ORDERED = "o"
    NUMBERED = (
        "n"  # numbered, holes allowed (plain devices with `seq`): repeats dropped, nothing held
    )
    # by the key of the request that brought them, numbered in it: repeats of the last
    # requests dropped, nothing held
    KEYED = "k"
    FREE = "f"  # not numbered: passed on as it comes


_DISCIPLINES: Final = {one.value: one for one in Discipline}


class Placement(NamedTuple):
    """What the sequencer needs of a frame.

    Header bytes: `discipline|stream|epoch|first|last|seq|readings`, ASCII, and `|content` where
    there is one; of a thing behind a gateway `|content|via|newest`.
    """

    discipline: Discipline
    stream: str
    epoch: int
    first: int
    """Number of the frame, or the first one that a gap frame replaces."""
    last: int
    seq: int = 0
    """Number of the first reading."""
    readings: int = 0
    """The number of readings in it, or the number that a gap frame reports as lost; so a missing
    frame's readings can be counted."""
    content: int = 0
    """A checksum of what a plain device sent with a number, which tells other readings under the
    same number from repeats; 0: none."""
    via: str = ""
    """The gateway that sent it and numbers it; empty: the device itself did."""
    newest: int = 0
    """Latest event time of a frame that came by a gateway, as the thing gave it, ms; 0: none."""

    def encode(self) -> bytes:
        """The header's value."""
        if self.via:
            return "|".join(map(str, self)).encode()
        form = "%s|%s|%d|%d|%d|%d|%d|%d" if self.content else "%s|%s|%d|%d|%d|%d|%d%.0s"
        return (form % self[:8]).encode()

    @classmethod
    def decode(cls, value: bytes) -> Placement:
        """Read our own header; a ValueError here is our bug or somebody writing to our topic."""
        discipline, stream, epoch, first, last, seq, readings, *more = value.decode().split("|")
        if len(more) < 2:
            more = [more[0] if more else "0", "", "0"]
        content, via, newest = more
        return cls(
            _DISCIPLINES.get(discipline) or Discipline(discipline),
            stream,
            int(epoch),
            int(first),
            int(last),
            int(seq),
            int(readings),
            int(content),
            via,
            int(newest),
        )


def content_of(payload: bytes) -> int:
    """The checksum of a plain device's message; never 0."""
    return crc32(payload) or 1


def encode(
    *,
    device: str,
    stream: str,
    mode: Mode,
    sent_at: int | None,
    received_at: int,
    frame_bytes: bytes,
    via: str = "",
) -> bytes:
    """Put origin and times before a checked frame's own bytes.

    They begin with `{`; names are safe in JSON.
    """
    sent = "null" if sent_at is None else str(sent_at)
    head = (
        f'{{"device":"{device}","stream":"{stream}","mode":"{mode}","sent_at":{sent},'
        f'"received_at":{received_at},'
    )
    if via:
        head += f'"via":"{via}",'
    return head.encode() + frame_bytes[frame_bytes.index(b"{") + 1 :]


def origin(partition: int, offset: int) -> bytes:
    """Value of ORIGIN_HEADER: a place on `ew.up`, as `partition:offset`."""
    return b"%d:%d" % (partition, offset)


def times_of(value: bytes) -> tuple[int | None, int]:
    """Read `sent_at` (None where unknown) and `received_at` of a record, and nothing else of it.

    Raises ValueError on foreign bytes.
    """
    start = value.index(b'"sent_at":') + 10
    end = value.index(b",", start)
    text = value[start:end]
    start = value.index(b'"received_at":', end) + 14
    return None if text == b"null" else int(text), int(value[start : value.index(b",", start)])


def with_clocks(value: bytes, *, shift: int, kept_at: int | None) -> bytes:
    """A record with the sequencer's findings about its clocks; the same bytes without any."""
    if kept_at is not None:
        value = b'{"kept_at":%d,' % kept_at + value[1:]
    return b'{"shift":%d,' % shift + value[1:] if shift else value


@dataclass(frozen=True, slots=True)
class Record:
    """A decoded record."""

    device: str
    stream: str
    mode: Mode
    sent_at: int | None
    received_at: int
    frame: Frame
    shift: int = 0
    """ms to add to every `t` of the frame."""
    kept_at: int | None = None
    """Kafka's clock, where the bridge's is not to be trusted."""
    via: str = ""
    """The gateway that sent it; empty: the device itself did."""


def decode(value: bytes) -> Record:
    """Read a record that a bridge checked before.

    Raises KeyError or orjson.JSONDecodeError on foreign bytes.
    """
    body: dict[str, Any] = orjson.loads(value)
    gap = body.get("gap")
    return Record(
        device=body["device"],
        stream=body["stream"],
        mode=Mode(body["mode"]),
        sent_at=body["sent_at"],
        received_at=body["received_at"],
        frame=Frame(
            epoch=body.get("epoch"),
            frame=body.get("frame"),
            seq=body.get("seq"),
            t=body.get("t", ()),
            fields=body.get("fields", {}),
            gap=None if gap is None else Gap(gap["reason"], gap["count"]),
            first_frame=body.get("first_frame"),
        ),
        shift=body.get("shift", 0),
        kept_at=body.get("kept_at"),
        via=body.get("via", ""),
    )


def readings(record: Record) -> Iterator[dict[str, Scalar]]:
    """The readings of a record as clients see them: flat, in order.

    {"stream":…, "device":…, "epoch":…, "seq":…, "t":…, "received_at":…, <field>:…}; a null field is
    left out, and `via`, the gateway, stands behind the device of what came by one. `t` is put right
    where the device's clock was wrong, as queries have it.
    """
    frame = record.frame
    names = list(frame.fields)
    columns = list(frame.fields.values())
    received_at = record.received_at if record.kept_at is None else record.kept_at
    origin: dict[str, Scalar] = {"stream": record.stream, "device": record.device}
    if record.via:
        origin["via"] = record.via
    for i, t in enumerate(frame.t):
        reading: dict[str, Scalar] = {
            **origin,
            "epoch": frame.epoch,
            "seq": None if frame.seq is None else frame.seq + i,
            "t": corrected_ms(t, shift=record.shift, received_at=received_at),
            "received_at": record.received_at,
        }
        for name, column in zip(names, columns, strict=True):
            if (value := column[i]) is not None:
                reading[name] = value
        yield reading
