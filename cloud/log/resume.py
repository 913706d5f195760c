"""Where a client begins that has a cursor: decisions only, no I/O.

What is still there of the cursor's streams is continued exactly. What is not becomes a gap, an
event of scope `cursor` before all others:

    {"scope":"cursor","reason":"retention","stream":…,"partition":0,"from":12,"earliest":80,"lost":68,"continues":"earliest"}

| reason | what happened | goes on at |
|---|---|---|
| `retention` | the records at the cursor are no longer kept | `on_gap` |
| `epoch` | the stream's topic was recreated; only this stream is concerned | `on_gap` |
| `unverifiable` | no key here verifies it, or a later version wrote it | `on_gap`, all streams |
| `truncated` | it points past the end: the log lost records that the client had seen | the end |
| `stream_added` | the cursor is older than the subscription's wish for this stream | `from` |
| `filter_changed` | `where` or `select` is another one than before | here, with nothing lost |
| `slow` | its client asked to skip what it cannot take | `to`, the live end of that moment |

`lost` counts Kafka records, at most: transaction markers take numbers too, and a record of a stream
holds one or many readings; null where it cannot be known. `on_gap=stop` stops at the first four. A
stream that is not asked for any more is dropped from the cursor without a word.

Each gap has a cursor of its own, in which only what was announced so far has moved: a client that
is cut off between two gaps and comes back gets the second one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from edgewake.cloud.log.decode import Event
from edgewake.cloud.log.request import LogEnd, OnGap
from edgewake.cloud.log.subscription import Bounds, Gap, Plan, Positions, Source, Start
from edgewake.protocol.cursor import Cursor, Position, StreamPosition, generation_hash, stream_hash

LOSSES: Final = frozenset({"retention", "epoch", "unverifiable", "truncated"})
"""The reasons at which `on_gap=stop` stops; the others are consequences of what the client itself
asked."""


def start_positions(edge: LogEnd, bounds: Sequence[Sequence[Bounds]]) -> Positions:
    """Every partition at one edge."""
    return tuple(
        tuple((b.earliest if edge is LogEnd.EARLIEST else b.latest, 0) for b in partitions)
        for partitions in bounds
    )


def stopped(plan: Plan) -> Start:
    """The start of a client that comes back with the cursor of a gap at which it was stopped.

    It is sent nothing.
    """
    return Start(
        tuple(((0, 0),) * source.partitions for source in plan.sources), "stopped", ends=True
    )


def resume(
    cursor: Cursor,
    plan: Plan,
    bounds: Sequence[Sequence[Bounds]],
    on_gap: OnGap,
    *,
    new: Positions,
    begins: str = LogEnd.LATEST,
) -> Start:
    """Go on from `cursor`.

    `new` is where streams begin that it does not have, and `begins` the name of that in their gap.
    """
    known = {entry.stream: entry for entry in cursor.streams}
    before = [known.get(stream_hash(source.name)) for source in plan.sources]
    entries = list(before)
    filters = cursor.filters
    gaps: list[Gap] = []
    if filters != plan.filters:
        filters = plan.filters
        gaps.append(
            Gap(gap_event("filter_changed", lost=0, continues="here"), _cursor(entries, filters))
        )
    for i, source in enumerate(plan.sources):
        for event, entry in _stream_gaps(before[i], source, bounds[i], on_gap, new[i], begins):
            entries[i] = entry
            gaps += [Gap(event, _cursor(entries, filters))] if event is not None else []
    positions = tuple(entry.partitions for entry in entries if entry is not None)
    if on_gap is OnGap.STOP and any(gap.event.fields["reason"] in LOSSES for gap in gaps):
        stop = replace(_cursor(before, cursor.filters), stop=True)
        return Start(positions, "gap", tuple(Gap(gap.event, stop) for gap in gaps), ends=True)
    return Start(positions, "gap" if gaps else "resumed", tuple(gaps))


def resume_unverified(plan: Plan, bounds: Sequence[Sequence[Bounds]], on_gap: OnGap) -> Start:
    """Go on by policy: nothing of the cursor can be trusted."""
    positions = start_positions(_log_end(on_gap), bounds)
    event = gap_event(
        "unverifiable",
        streams=[source.name for source in plan.sources],
        lost=None,
        continues=on_gap,
    )
    cursor = replace(plan.cursor(positions), stop=on_gap is OnGap.STOP)
    return Start(positions, "gap", (Gap(event, cursor),), ends=on_gap is OnGap.STOP)


def partition_gap(
    reason: str,
    stream: str,
    partition: int,
    position: Position,
    kept: Bounds,
    to: int,
    continues: str,
) -> Event:
    """The gap of one partition."""
    return gap_event(
        reason,
        stream=stream,
        partition=partition,
        **{"from": position[0]},
        earliest=kept.earliest,
        lost=max(0, to - position[0]) if reason == "retention" else None,
        continues=continues,
    )


def skipped_gap(stream: str, partition: int, position: Position, to: int) -> Event:
    """The gap of one partition of which a slow reader skips what lies before `to`."""
    return gap_event(
        "slow",
        stream=stream,
        partition=partition,
        **{"from": position[0]},
        to=to,
        lost=max(0, to - position[0]),
        continues=OnGap.LATEST,
    )


def gap_event(reason: str, **facts: Any) -> Event:
    """A gap of scope cursor."""
    import orjson

    fields = {"scope": "cursor", "reason": reason, **facts}
    return Event("gap", fields, orjson.dumps(fields))


def _stream_gaps(
    entry: StreamPosition | None,
    source: Source,
    kept: Sequence[Bounds],
    on_gap: OnGap,
    new: tuple[Position, ...],
    begins: str,
) -> Iterator[tuple[Event | None, StreamPosition]]:
    """The gaps of one stream, each with the position after it.

    At least one pair, so that partitions that were added are included.
    """
    name, generation = stream_hash(source.name), generation_hash(source.topic_id)
    if entry is None:
        yield (
            gap_event("stream_added", stream=source.name, lost=None, continues=begins),
            StreamPosition(name, generation, new),
        )
        return
    if entry.generation != generation or len(entry.partitions) > source.partitions:
        (row,) = start_positions(_log_end(on_gap), [kept])
        yield (
            gap_event("epoch", stream=source.name, lost=None, continues=on_gap),
            StreamPosition(name, generation, row),
        )
        return
    # A partition that was added since begins at its first record.
    positions = [*entry.partitions, *[(0, 0)] * (source.partitions - len(entry.partitions))]
    yield None, StreamPosition(name, generation, tuple(positions))
    for partition, (position, b) in enumerate(zip(positions, kept, strict=True)):
        if position[0] < b.earliest:
            reason = "retention"
        elif position[0] > b.latest:
            reason = "truncated"
        else:
            continue
        to = b.latest if reason == "truncated" or on_gap is OnGap.LATEST else b.earliest
        continues = OnGap.LATEST if reason == "truncated" and on_gap is not OnGap.STOP else on_gap
        event = partition_gap(reason, source.name, partition, position, b, to, continues)
        positions[partition] = (to, 0)
        yield event, StreamPosition(name, generation, tuple(positions))


def _cursor(entries: Sequence[StreamPosition | None], filters: bytes) -> Cursor:
    return Cursor(tuple(entry for entry in entries if entry is not None), filters)


def _log_end(on_gap: OnGap) -> LogEnd:
    return LogEnd.LATEST if on_gap is OnGap.LATEST else LogEnd.EARLIEST
