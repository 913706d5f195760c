"""Feeds: a device follows streams and results of others, one chunk at a time (stop and wait).

It asks for what follows its cursor and gets a chunk of it.

    ew/v1/car-07/req/feed
    {"feed":"weather","streams":["city_weather"],"begin":"earliest","after":""}

    ew/v1/car-07/down/feed
    {"feed":"weather","after":"","cursor":"v2.…","events":[{…},…]}

The device asks (QoS 0, from its own memory, and again until it is answered), and any bridge answers
(QoS 1): as soon as there is something, or after FEED_WAIT_S with nothing. `cursor` is a client's
cursor of the access servers: any of them goes on there, years later too. The device keeps the
events and the cursor in one transaction before it confirms the chunk to the broker, and asks with
that cursor. So a device that sleeps goes on where it stopped, and what comes twice is known by its
`after`. What is no longer kept is a gap, counted where it can be.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Final, Literal, TypeVar

import orjson

from edgewake.protocol.downlink.downlink import FEED, MESSAGE_BYTES_MAX, OUTPUT_CHARS_MAX
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.names import STREAM_PATTERN, STREAMS_PER_SUBSCRIPTION_MAX
from edgewake.protocol.plain import Length, Matching, Plain, key
from edgewake.protocol.plain_json import Misshapen, read

ASK_BYTES_MAX: Final = 16 * 1024
"""The largest question of a device, bytes."""
CHUNK_BYTES: Final = 32 * 1024
"""Bytes of events after which a chunk is sent: 4 s at 64 kbit/s. Its last event may exceed it, up
to MESSAGE_BYTES_MAX in all."""
FEEDS_MAX: Final = 16
"""The most feeds of one device at once. The question for one more is not answered."""
FILTER_CHARS_MAX: Final = 4096
"""The longest condition or selection, characters."""
DEVICE_HEADER: Final = "Edgewake-Device"
"""HTTP header by which a bridge tells an access server which device asks."""

StreamName = Annotated[str, Matching(f"^{STREAM_PATTERN.pattern}$")]
Filter = Annotated[str, Length(0, FILTER_CHARS_MAX)]
CursorText = Annotated[str, Length(0, 8192), Matching(r"^[\x21-\x7e]*$")]


class FeedAsk(Plain):
    """A device's question."""

    feed: StreamName
    """The device's name for it: the stream of its log that the events go to."""
    streams: Annotated[tuple[StreamName, ...], Length(1, STREAMS_PER_SUBSCRIPTION_MAX)]
    """Streams and queries."""
    where: Filter | None = None
    select: Filter | None = None
    begin: Literal["earliest", "latest"] = "latest"
    """Where to begin if there is no cursor."""
    after: CursorText = ""
    """The cursor; empty: none yet."""


class FeedChunk(Plain):
    """The answer to a question: events, or gaps."""

    feed: StreamName
    after: CursorText
    """The cursor of the request."""
    cursor: CursorText = ""
    """Behind the last event."""
    events: tuple[dict[str, Any], ...] = ()
    """Events in the form of the access servers."""
    gaps: tuple[dict[str, Any], ...] = ()
    """What is lost before them: `reason`, and `lost` where it can be counted."""
    error: str = key(default="", max_length=OUTPUT_CHARS_MAX)
    """The reason why there is nothing, for people. The device asks again after `retry_s`."""
    retry_s: float = key(default=0.0, ge=0, le=86_400)

    def to_json(self) -> bytes:
        """Without what is empty: a device may pay for each byte."""
        found = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return orjson.dumps(
            {name: value for name, value in found.items() if value or name in ("feed", "after")}
        )


M = TypeVar("M", FeedAsk, FeedChunk)


def decode(form: type[M], payload: bytes) -> M:
    """Read a message. Raises Rejected(oversize | json | shape)."""
    most = ASK_BYTES_MAX if form is FeedAsk else MESSAGE_BYTES_MAX
    if len(payload) > most:
        raise Rejected(RejectReason.OVERSIZE, f"{len(payload)} bytes: expected at most {most}")
    try:
        return read(form, payload)
    except orjson.JSONDecodeError as error:
        raise Rejected(RejectReason.JSON, f"{FEED}: {error}"[:OUTPUT_CHARS_MAX]) from error
    except Misshapen as error:
        raise Rejected(
            RejectReason.SHAPE, f"{error.where or FEED}: {error.expected}"[:OUTPUT_CHARS_MAX]
        ) from error
