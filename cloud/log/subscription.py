"""What a client asks for and where it begins: decisions only, no I/O.

    Request   what the query string and Last-Event-ID say, checked as far as words go
    Source    one stream or query as Kafka has it now
    Plan      a request's streams with their sources and compiled filters
    Start     the positions to begin at, and the gaps to be told first

A gap of scope `cursor` says why a cursor could not be continued exactly:

    {"scope":"cursor","reason":"retention","stream":…,"partition":0,"from":12,"earliest":80,"lost":68,"continues":"earliest"}

`reason`: retention (what the cursor points at is no longer kept), truncated (it points past the end), epoch (a topic was made anew),
subscription (it belongs to other streams or filters; lost is null, unknown). `lost` counts Kafka records, at most: transaction markers
take numbers too, and a record of a stream holds one or many readings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypeAlias

from edgewake.cloud.log.decode import DATA, Event, project
from edgewake.cloud.log.filter import Predicate, Projection, compile_select, compile_where
from edgewake.protocol.cursor import Cursor, Position, generation_hash, subscription_hash
from edgewake.protocol.errors import RemoteError
from edgewake.protocol.lease import STREAMS_PER_SUBSCRIPTION_MAX, Subscription

Positions: TypeAlias = tuple[tuple[Position, ...], ...]
"""Per stream in sorted order, per partition."""

TIME_MS_MAX: Final = 253_402_300_799_999
"""The year 9999."""


class RequestError(RemoteError):
    """A request that is wrong in itself; `code` is for machines."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class OnGap(StrEnum):
    """What to do after a gap was told."""

    EARLIEST = "earliest"
    LATEST = "latest"
    STOP = "stop"


class Edge(StrEnum):
    """An end of what is kept."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Request:
    """A subscription and its beginning. `cursor` wins over `start`, which is an edge or a time in ms since 1970 UTC."""

    subscription: Subscription
    cursor: str | None = None
    start: Edge | int = Edge.LATEST
    on_gap: OnGap = OnGap.EARLIEST
    checkpoint_events: bool = False
    """Send the cursor's progress as `event: checkpoint` with data and not as a block with an id alone."""


@dataclass(frozen=True, slots=True)
class Source:
    """A stream (`ew.s.*`) or a query (`ew.q.*`) as Kafka has it."""

    name: str
    topic: str
    is_query: bool
    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A subscription ready to be read. `sources` are in the sorted order that cursors use."""

    subscription: Subscription
    sources: tuple[Source, ...]
    predicate: Predicate | None
    projection: Projection | None
    hash: bytes = field(default=b"")
    generation: bytes = field(default=b"")

    def show(self, event: Event) -> Event | None:
        """The event as this subscription sees it; None when filtered out. Gaps and watermarks are always shown."""
        if event.kind != DATA:
            return event
        if self.predicate is not None and not self.predicate(event.fields):
            return None
        return event if self.projection is None else project(event, self.projection(event.fields))

    def cursor(self, positions: Positions) -> Cursor:
        """The cursor of a place."""
        return Cursor(self.hash, self.generation, positions)


def normal(subscription: Subscription) -> Subscription:
    """Streams sorted and each once; an empty filter is none."""
    streams = tuple(sorted(set(subscription.streams)))
    return Subscription(streams=streams, where=subscription.where or None, select=subscription.select or None)


def check_filters(subscription: Subscription) -> tuple[Predicate | None, Projection | None]:
    """The compiled filters; raises FilterError."""
    where, select = subscription.where, subscription.select
    return None if where is None else compile_where(where), None if select is None else compile_select(select)


def plan(subscription: Subscription, sources: Sequence[Source]) -> Plan:
    """A plan of a normal subscription; raises FilterError."""
    return Plan(
        subscription,
        tuple(sources),
        *check_filters(subscription),
        subscription_hash(subscription.streams, subscription.where, subscription.select),
        generation_hash([source.topic_id for source in sources]),
    )


def request(
    streams: Sequence[str],
    *,
    where: str | None = None,
    select: str | None = None,
    start: str | None = None,
    on_gap: str | None = None,
    checkpoint: str | None = None,
    cursors: Sequence[str | None] = (),
) -> Request:
    """Read the words of a request; `cursors` in order of rank, the first that is not empty counts. Raises RequestError."""
    if not 0 < len(set(streams)) <= STREAMS_PER_SUBSCRIPTION_MAX:
        raise RequestError("streams", f"{len(set(streams))} streams: expected 1 to {STREAMS_PER_SUBSCRIPTION_MAX}")
    if checkpoint not in (None, "id", "event"):
        raise RequestError("checkpoint", f"checkpoint={checkpoint[:40]!r}: expected id or event")
    try:
        gap_policy = OnGap(on_gap or OnGap.EARLIEST)
    except ValueError:
        raise RequestError("on_gap", f"on_gap={str(on_gap)[:40]!r}: expected earliest, latest or stop") from None
    return Request(
        normal(Subscription(streams=tuple(streams), where=where, select=select)),
        next(filter(None, cursors), None),
        parse_start(start or Edge.LATEST),
        gap_policy,
        checkpoint == "event",
    )


def parse_start(text: str) -> Edge | int:
    """`earliest`, `latest`, an ISO 8601 time with offset or Z, or ms since 1970 UTC; raises RequestError."""
    if text in (Edge.EARLIEST, Edge.LATEST):
        return Edge(text)
    try:
        ms = int(text) if text.isascii() and text.isdigit() else _iso_ms(text)
    except ValueError:
        ms = -1
    if not 0 <= ms <= TIME_MS_MAX:
        expected = "earliest, latest, a time such as 2026-11-21T08:00:00Z, or milliseconds since 1970"
        raise RequestError("from", f"from={text[:40]!r}: expected {expected}")
    return ms


def _iso_ms(text: str) -> int:
    # A `+` of an offset that was not encoded arrives as a blank.
    moment = datetime.fromisoformat(text.replace(" ", "+") if text.count(" ") == 1 and "T" in text else text)
    if moment.tzinfo is None:
        raise ValueError("no offset")
    return int(moment.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class Bounds:
    """A partition as it is kept now: offset of its first record and the one after its last committed record."""

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin. `how`: earliest, latest, time, resumed or gap. `ends` when the client asked to stop at a gap."""

    positions: Positions
    how: str
    gaps: tuple[Event, ...] = ()
    ends: bool = False


def fits(cursor: Cursor, plan: Plan) -> str | None:
    """Why a cursor is not of this plan (subscription, epoch); None when it is. Partitions may have been added since."""
    if cursor.subscription != plan.hash:
        return "subscription"
    shapes = zip(cursor.positions, plan.sources, strict=False)
    if cursor.generation != plan.generation or len(cursor.positions) != len(plan.sources):
        return "epoch"
    return "epoch" if any(len(positions) > source.partitions for positions, source in shapes) else None


def padded(cursor: Cursor, plan: Plan) -> Positions:
    """The cursor's positions; partitions that were added since begin at their first record."""
    pairs = zip(cursor.positions, plan.sources, strict=True)
    return tuple(positions + ((0, 0),) * (source.partitions - len(positions)) for positions, source in pairs)


def begin_at(edge: Edge, bounds: Sequence[Sequence[Bounds]]) -> Positions:
    """Every partition at one edge."""
    return tuple(tuple((b.earliest if edge is Edge.EARLIEST else b.latest, 0) for b in partitions) for partitions in bounds)


def begin_anew(reason: str, plan: Plan, bounds: Sequence[Sequence[Bounds]], on_gap: OnGap) -> Start:
    """A cursor that cannot be continued at all."""
    gap = gap_event(reason, streams=[source.name for source in plan.sources], lost=None, continues=on_gap)
    return Start(begin_at(_edge(on_gap), bounds), "gap", (gap,), on_gap is OnGap.STOP)


def resume(positions: Positions, plan: Plan, bounds: Sequence[Sequence[Bounds]], on_gap: OnGap) -> Start:
    """Continue at `positions` where they are still kept; what is not becomes a gap for each such partition."""
    gaps: list[Event] = []
    resumed = []
    for source, wanted, kept in zip(plan.sources, positions, bounds, strict=True):
        row = []
        for partition, (position, b) in enumerate(zip(wanted, kept, strict=True)):
            reason = "retention" if position[0] < b.earliest else "truncated" if position[0] > b.latest else None
            if reason is not None:
                gaps.append(partition_gap(reason, source.name, partition, position, b, on_gap))
                position = (b.latest if on_gap is OnGap.LATEST else b.earliest, 0)
            row.append(position)
        resumed.append(tuple(row))
    return Start(tuple(resumed), "gap" if gaps else "resumed", tuple(gaps), bool(gaps) and on_gap is OnGap.STOP)


def partition_gap(reason: str, stream: str, partition: int, position: Position, kept: Bounds, on_gap: OnGap) -> Event:
    """The gap of one partition."""
    to = kept.latest if on_gap is OnGap.LATEST else kept.earliest
    return gap_event(
        reason,
        stream=stream,
        partition=partition,
        **{"from": position[0]},
        earliest=kept.earliest,
        lost=max(0, to - position[0]) if reason == "retention" else None,
        continues=on_gap,
    )


def gap_event(reason: str, **facts: Any) -> Event:
    """A gap of scope cursor."""
    import orjson

    fields: Mapping[str, Any] = {"scope": "cursor", "reason": reason, **facts}
    return Event("gap", fields, orjson.dumps(fields))


def _edge(on_gap: OnGap) -> Edge:
    return Edge.LATEST if on_gap is OnGap.LATEST else Edge.EARLIEST
