"""How a device follows streams and results of others: it asks for what follows its cursor, and gets a chunk of it. Stop and wait.

    ew/v1/car-07/req/feed     {"feed":"weather","streams":["city_weather"],"begin":"earliest","after":""}
    ew/v1/car-07/down/feed    {"feed":"weather","after":"","cursor":"v2.…","events":[{…},…]}

The device asks (QoS 0, from its own memory, and again until it is answered), and any bridge answers (QoS 1): as soon as there is
something, or after FEED_WAIT_S with nothing. `cursor` is a client's cursor of the access servers: any of them goes on there, years later
too. The device keeps the events and the cursor in one transaction before it confirms the chunk to the broker, and asks with that cursor.
So a device that sleeps goes on where it stopped, and what comes twice is known by its `after`. What is no longer kept is a gap, counted
where it can be.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgewake.protocol.downlink import FEED, MESSAGE_BYTES_MAX, OUTPUT_CHARS_MAX
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.lease import STREAMS_PER_SUBSCRIPTION_MAX
from edgewake.protocol.names import STREAM_PATTERN

ASK_BYTES_MAX: Final = 16 * 1024
"""Bytes of a device's question."""
CHUNK_BYTES: Final = 32 * 1024
"""Bytes of events after which a chunk is sent: 4 s at 64 kbit/s. Its last event may exceed it, up to MESSAGE_BYTES_MAX in all."""
FEEDS_MAX: Final = 16
"""Feeds of one device at a time. The question for one more is not answered."""
FILTER_CHARS_MAX: Final = 4096
"""Characters of a condition, and of a selection."""

StreamName = Annotated[str, Field(pattern=f"^{STREAM_PATTERN.pattern}$")]
Filter = Annotated[str, Field(max_length=FILTER_CHARS_MAX)]
CursorText = Annotated[str, Field(max_length=8192, pattern=r"^[\x21-\x7e]*$")]


class FeedAsk(BaseModel):
    """What a device asks for."""

    model_config = ConfigDict(frozen=True)

    feed: StreamName
    """The device's name for it: the stream of its log that the events go to."""
    streams: Annotated[tuple[StreamName, ...], Field(min_length=1, max_length=STREAMS_PER_SUBSCRIPTION_MAX)]
    """Streams and queries."""
    where: Filter | None = None
    select: Filter | None = None
    begin: Literal["earliest", "latest"] = "latest"
    """Where to begin without a cursor."""
    after: CursorText = ""
    """The cursor; empty: none yet."""


class FeedChunk(BaseModel):
    """What it gets."""

    model_config = ConfigDict(frozen=True)

    feed: StreamName
    after: CursorText
    """As asked."""
    cursor: CursorText = ""
    """Behind the last event."""
    events: tuple[dict[str, Any], ...] = ()
    """As the access servers show them."""
    gaps: tuple[dict[str, Any], ...] = ()
    """What is lost before them: `reason`, and `lost` where it can be counted."""
    error: Annotated[str, Field(max_length=OUTPUT_CHARS_MAX)] = ""
    """Why there is nothing, for people. The device asks again after `retry_s`."""
    retry_s: Annotated[float, Field(ge=0, le=86_400)] = 0.0


M = TypeVar("M", FeedAsk, FeedChunk)


def decode(form: type[M], payload: bytes) -> M:
    """Read a message. Raises Rejected(oversize | shape)."""
    most = ASK_BYTES_MAX if form is FeedAsk else MESSAGE_BYTES_MAX
    if len(payload) > most:
        raise Rejected(RejectReason.OVERSIZE, f"{len(payload)} bytes: expected at most {most}")
    try:
        return form.model_validate_json(payload)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise Rejected(RejectReason.SHAPE, f"{'.'.join(map(str, first['loc'])) or FEED}: {first['msg']}"[:OUTPUT_CHARS_MAX]) from error
