"""Finds a frame by its ack token: its position on its stream and its progress through each query.

The token is the frame's position on `ew.up`. Its partition
determines the one on the stream's topic, where the sequencer copies it with the same timestamp and
a header that names the token. So the search begins at the first record with that timestamp or a
later one: the frame is there or after it, at any rate and any delay of the sequencer. Where it is
not found, the sequencer's own position tells why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import orjson
from confluent_kafka import Message
from pydantic import BaseModel

from edgewake.cloud.kafka.headers import headers_of
from edgewake.cloud.ops.lookups.kafka_lookup import DeadlinePassed, KafkaSession
from edgewake.protocol import topics
from edgewake.protocol.frames.ack import AckToken
from edgewake.protocol.frames.record import (
    ORIGIN_HEADER,
    PLACEMENT_HEADER,
    Discipline,
    Placement,
    origin,
)
from edgewake.protocol.frames.sequence import BEGINNING, POSITION_KEY, Position, decode_positions
from edgewake.protocol.ops.query import Progress, Reached, Registration

HELD_MAX_MS: Final = 3_600_000
"""The longest time that a sequencer may be configured to hold a frame (`hold_s`); records received
later come after every held frame."""
CLOCKS_APART_MS: Final = 300_000
"""The largest difference between the clocks of two bridges."""
YOUNG_MS: Final = 5_000
"""Kafka shows the records of one transaction on different topics some milliseconds apart, so a
frame this young is not called a repeat."""
POSITION_RECORDS: Final = 2_000
"""Records at the end of `ew.sequence` among which the sequencer's position is; every transaction
writes it."""

FrameState = Literal["sequenced", "kept", "held", "repeat", "gone", "searching", "dead"]


class QueryPosition(BaseModel):
    """The progress of a query with a frame."""

    query: str
    state: Literal["computed", "pending", "not_asked"]
    """not_asked: the query was registered (or resumed) after the frame had passed, and never saw
    it."""
    offsets_behind: int
    """Kafka offsets, with transaction markers, until the frame is computed; 0 where nothing is
    pending."""


class AckView(BaseModel):
    """A frame and its progress."""

    token: str
    device: str
    stream: str
    epoch: int | None
    first_frame: int | None
    frame: int | None
    received_at: int
    """When the frame entered Kafka, ms since 1970 UTC."""
    state: FrameState
    """sequenced: on its stream, for everybody. kept: in Kafka, the sequencer has not reached it.
    held: waits for an earlier frame of its device. repeat: an earlier copy is on the stream. gone:
    the stream no longer keeps records of that time. searching: the request's time was over, ask
    again with `from_offset`. dead: refused, kept as a dead letter."""
    partition: int | None = None
    offset: int | None = None
    """Its position on the stream's topic; for a dead letter on `ew.dead`."""
    from_offset: int | None = None
    """Where the search continues; only with `searching`."""
    queries: list[QueryPosition] = []
    detail: str = ""


@dataclass(frozen=True)
class Search:
    """The result of a search on a stream's topic."""

    partition: int | None = None
    """The partition on which the frame is or would be; None: the stream has no topic."""
    offset: int | None = None
    """The frame's offset; None: it was not found."""
    later_seen: bool = False
    """Whether a later frame of the same device and epoch was found."""
    is_cut: bool = False
    """Whether records of the frame's time have expired."""


def look_up(
    session: KafkaSession, token: AckToken, *, now_ms: int, from_offset: int | None = None
) -> AckView:
    """Finds a frame's state, without queries.

    Raises OutOfRange (the token is unknown or has expired), LookupError or Unavailable.
    """
    message = session.record(
        topics.DEAD if token.dead else topics.UP, token.partition, token.offset
    )
    if token.dead:
        return _dead(token, message)
    header = headers_of(message).get(PLACEMENT_HEADER)
    if header is None:
        raise LookupError(f"{topics.UP} {token}: not a record of a bridge")
    placement = Placement.decode(header)
    is_numbered = placement.discipline is not Discipline.FREE
    view = AckView(
        token=str(token),
        device=(message.key() or b"").decode("utf-8", "replace"),
        stream=placement.stream,
        epoch=placement.epoch if is_numbered else None,
        first_frame=placement.first if is_numbered else None,
        frame=placement.last if is_numbered else None,
        received_at=message.timestamp()[1],
        state="searching",
    )
    # The position is read before the search, which therefore finds all that the position covers.
    position = sequencer_position(session, token.partition)
    try:
        search = _search(session, token, placement, message, from_offset)
    except DeadlinePassed as passed:
        return view.model_copy(
            update={
                "from_offset": passed.offset,
                "detail": f"not found before offset {passed.offset}; {passed}",
            }
        )
    if search.offset is not None:
        return view.model_copy(
            update={"state": "sequenced", "partition": search.partition, "offset": search.offset}
        )
    state, detail = why_not_found(
        token.offset, position, search, is_numbered=is_numbered, age_ms=now_ms - view.received_at
    )
    return view.model_copy(update={"state": state, "detail": detail})


def why_not_found(
    offset: int, position: Position | None, search: Search, *, is_numbered: bool, age_ms: int
) -> tuple[FrameState, str]:
    """Explains why a frame at `offset` of `ew.up` is not on its stream: a state and a sentence."""
    if position is None or offset >= position.emitted_before:
        return "kept", "Kafka has the frame; the sequencer has not reached it"
    if search.is_cut:
        return "gone", "the stream no longer keeps the records of that time"
    if not is_numbered or age_ms < YOUNG_MS:
        return "kept", "Kafka has the frame; the sequencer's transaction is not visible yet"
    if offset < position.waits_from or search.later_seen:
        return "repeat", "a repeat: the same frame had come before, and the stream has it once"
    return "held", "waits for an earlier frame of its device"


def _search(
    session: KafkaSession,
    token: AckToken,
    placement: Placement,
    message: Message,
    from_offset: int | None,
) -> Search:
    topic, received_at = topics.stream_topic(placement.stream), message.timestamp()[1]
    count = session.partitions(topic)
    if not count:  # No record of the stream was sequenced yet.
        return Search()
    partition = topics.stream_partition(token.partition, count)
    low, high = session.range(topic, partition)
    first = session.offset_at(topic, partition, received_at)
    if first is None:
        return Search(partition, is_cut=low > 0 and session.offset_at(topic, partition, 0) is None)
    wanted, later_seen = origin(token.partition, token.offset), False
    is_cut = first == low > 0
    for candidate in session.read(topic, partition, max(first, from_offset or 0), high):
        if headers_of(candidate).get(ORIGIN_HEADER) == wanted:
            return Search(partition, int(candidate.offset()))
        if candidate.timestamp()[1] > received_at + HELD_MAX_MS + CLOCKS_APART_MS:
            break
        later_seen = later_seen or (
            candidate.key() == message.key() and _is_later(candidate.value(), placement)
        )
    return Search(partition, later_seen=later_seen, is_cut=is_cut)


def _is_later(value: bytes | None, placement: Placement) -> bool:
    """Returns whether a record is of the same epoch, with the same number or a higher one."""
    body = orjson.loads(value or b"{}")
    return body.get("epoch") == placement.epoch and (body.get("frame") or 0) >= placement.last


def sequencer_position(session: KafkaSession, partition: int) -> Position | None:
    """Returns the sequencer's last position in a partition; None where it committed none yet."""
    found = None
    shard = topics.shard_of(partition)
    try:
        low, high = session.range(topics.SEQUENCE, shard)
    except LookupError:
        return None
    for row in session.read(topics.SEQUENCE, shard, max(low, high - POSITION_RECORDS), high):
        if row.key() == POSITION_KEY.encode() and row.value():
            found = row.value()
    position = None if found is None else decode_positions(found).get(partition)
    return None if position is None or position.read_from == BEGINNING else position


def _dead(token: AckToken, message: Message) -> AckView:
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
        detail=headers_of(message).get("detail", b"").decode("utf-8", "replace"),
    )


def with_queries(
    view: AckView, registered: Mapping[str, Registration], progress: Iterable[Progress]
) -> AckView:
    """Adds the stream's queries to a view.

    Progress from before a registration belongs to an earlier query of the same name.
    """
    if view.offset is None or view.partition is None or view.state != "sequenced":
        return view
    current = [
        p
        for p in progress
        if p.query in registered and p.updated_at >= registered[p.query].registered_at
    ]
    of_stream = [
        (one.query, one.reached[view.stream])
        for one in sorted(current, key=lambda p: p.query)
        if view.stream in one.reached
    ]
    positions = [_query(name, reached, view.partition, view.offset) for name, reached in of_stream]
    return view.model_copy(update={"queries": positions})


def _query(name: str, reached: Reached, partition: int, offset: int) -> QueryPosition:
    if offset < reached.joined_at_offsets.get(partition, 0):
        return QueryPosition(query=name, state="not_asked", offsets_behind=0)
    behind = max(0, offset + 1 - reached.offsets.get(partition, 0))
    return QueryPosition(
        query=name, state="pending" if behind else "computed", offsets_behind=behind
    )
