"""What became of a frame: an ack token exchanged for the frame's place and its progress through every query.

The token is the frame's place on `ew.up`. The sequencer writes a frame to the same partition of its stream's topic and says in a
header where it came from; it never writes before it was received, so the search begins at `received_at`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from confluent_kafka import Message
from pydantic import BaseModel

from edgewake.cloud.kafka.headers import headers_of
from edgewake.cloud.ops.kafka_lookup import KafkaLookup
from edgewake.protocol import topics
from edgewake.protocol.ack import AckToken
from edgewake.protocol.query import Progress
from edgewake.protocol.record import ORIGIN_HEADER, PLACEMENT_HEADER, Placement, origin

SCANNED_MAX: Final = 20_000
"""Records of the stream looked at to find the frame."""
CLOCKS_APART_MS: Final = 5_000
"""How far the sequencer's clock may be behind the bridge's."""


class QueryPlace(BaseModel):
    """How far a query is with a frame."""

    query: str
    state: Literal["computed", "pending"]
    lag: int
    """Records to compute until the frame is; 0 when it is computed."""


class AckView(BaseModel):
    """A frame and its way."""

    token: str
    device: str
    stream: str
    epoch: int | None
    first_frame: int | None
    frame: int | None
    received_at: int
    """When the frame entered Kafka, ms since 1970 UTC."""
    state: Literal["sequenced", "waiting", "dead"]
    """sequenced: on the stream, for everybody; waiting: a repeat, or held until the frames before it come; dead: refused."""
    partition: int | None = None
    offset: int | None = None
    """Its place on the stream's topic."""
    queries: list[QueryPlace] = []
    detail: str = ""


def look_up(lookup: KafkaLookup, token: AckToken) -> AckView:
    """The frame's place, without queries. Raises OutOfRange or LookupError."""
    if token.dead:
        return _dead(lookup, token)
    message = lookup.record(topics.UP, token.partition, token.offset)
    placement = Placement.decode(headers_of(message)[PLACEMENT_HEADER])
    numbered = placement.discipline.value != "f"
    found = _find(lookup, token, placement, message)
    return AckView(
        token=str(token),
        device=(message.key() or b"").decode("utf-8", "replace"),
        stream=placement.stream,
        epoch=placement.epoch if numbered else None,
        first_frame=placement.first if numbered else None,
        frame=placement.last if numbered else None,
        received_at=message.timestamp()[1],
        state="waiting" if found is None else "sequenced",
        partition=None if found is None else token.partition,
        offset=found,
        detail="" if found is not None else "not on the stream: a repeat of a frame that is, or held until the frames before it come",
    )


def _dead(lookup: KafkaLookup, token: AckToken) -> AckView:
    message = lookup.record(topics.DEAD, token.partition, token.offset)
    headers = headers_of(message)
    return AckView(
        token=str(token),
        device=(message.key() or b"").decode("utf-8", "replace"),
        stream="",
        epoch=None,
        first_frame=None,
        frame=None,
        received_at=message.timestamp()[1],
        state="dead",
        partition=token.partition,
        offset=token.offset,
        detail=headers.get("detail", b"").decode("utf-8", "replace"),
    )


def _find(lookup: KafkaLookup, token: AckToken, placement: Placement, message: Message) -> int | None:
    topic = topics.stream_topic(placement.stream)
    try:
        low, high = lookup.range(topic, token.partition)
    except LookupError:
        return None
    first = lookup.offset_at(topic, token.partition, message.timestamp()[1] - CLOCKS_APART_MS)
    if first is None:
        return None
    first = max(low, first)
    wanted = origin(token.partition, token.offset)
    for candidate in lookup.scan(topic, token.partition, first, min(high, first + SCANNED_MAX)):
        if headers_of(candidate).get(ORIGIN_HEADER) == wanted:
            return int(candidate.offset())
    return None


def with_queries(view: AckView, progress: Iterable[Progress]) -> AckView:
    """The view with its stream's queries."""
    if view.offset is None or view.partition is None or view.state != "sequenced":
        return view
    places = []
    for query in sorted(progress, key=lambda p: p.query):
        if query.stream == view.stream:
            lag = max(0, view.offset + 1 - query.offsets.get(view.partition, 0))
            places.append(QueryPlace(query=query.query, state="pending" if lag else "computed", lag=lag))
    return view.model_copy(update={"queries": places})
