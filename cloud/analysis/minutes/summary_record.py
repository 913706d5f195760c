"""How far each stream is summarized, as a record on `ew.lanes`. Pure.

It is written in the transaction that holds a batch's summaries, and read at the start.

All streams are summarized by one batch after the other, but each keeps a position of its own: how
far it was read, how far its event time has come, and from where its open minutes are computed again
after a restart. So a stream that is behind, silent or unreadable delays no other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from pydantic import BaseModel, ConfigDict

from edgewake.cloud.analysis.minutes.retained import noted
from edgewake.cloud.analysis.results.event_progress import behind, progress

Range = Mapping[int, tuple[int, int]]
"""Partition → first offset, and the one after the last."""
KEY: Final = "|summary"
"""The record's key."""


class StreamPlace(BaseModel):
    """How far one stream has come."""

    model_config = ConfigDict(frozen=True)

    offsets: dict[int, int] = {}
    """Partition → first offset that was not summed up."""
    open_from: dict[int, int] = {}
    """Partition → from where the readings of open minutes are read again after a restart."""
    closed: int | None = None
    """Event time in ms by which the last batch knew minutes as closed."""
    top: int | None = None
    """How far event time has come, ms (event_progress): closes minutes from the next batch on."""
    tops: dict[int, int] = {}
    """Partition → latest event time of its readings, ms."""
    late_from: dict[int, int] = {}
    """Partition → where the last transaction's batch began, if it had late readings of this
    stream."""
    days: dict[int, int | None] = {}
    """See `retained`."""


class SummaryRecord(BaseModel):
    """How far all have come."""

    model_config = ConfigDict(frozen=True)

    revision: int = -1
    """Batch number of the last transaction with summaries; -1 before the first."""
    streams: dict[str, StreamPlace] = {}


def kept_places(
    record: SummaryRecord, wanted: Collection[str], kept: Mapping[str, Range]
) -> dict[str, StreamPlace]:
    """The positions of the wanted streams that have a topic, where the topic is still the same.

    `kept`: the offsets that Kafka has of each.

    A topic that ends before the position was deleted and created again: nothing of it was read yet.
    """
    found = {}
    for stream in wanted:
        if (has := kept.get(stream)) is None:
            continue
        place = record.streams.get(stream, StreamPlace())
        is_other = any(
            offset > has[partition][1]
            for partition, offset in place.offsets.items()
            if partition in has
        )
        found[stream] = StreamPlace() if is_other else place
    return found


def lost(place: StreamPlace, kept: Range) -> dict[int, tuple[int, int]]:
    """Return partition → offsets that retention removed before they were summarized.

    They are the first offset, and the one after the last.
    """
    ranges = {
        partition: (place.offsets.get(partition), low) for partition, (low, _) in kept.items()
    }
    return {
        partition: (at, low)
        for partition, (at, low) in ranges.items()
        if at is not None and at < low
    }


def next_ranges(
    places: Mapping[str, StreamPlace], kept: Mapping[str, Range], records_max: int
) -> dict[str, dict[int, tuple[int, int]]]:
    """Return stream → offset ranges to read next, `records_max` records in all.

    Partitions with unread records get the same share at most.
    """
    unread = {
        (stream, partition): (max(low, places[stream].offsets.get(partition, low)), high)
        for stream, ranges in kept.items()
        if stream in places
        for partition, (low, high) in ranges.items()
        if high > max(low, places[stream].offsets.get(partition, low))
    }
    share = max(1, records_max // max(1, len(unread)))
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for (stream, partition), (start, high) in unread.items():
        found.setdefault(stream, {})[partition] = start, min(high, start + share)
    return found


def again(place: StreamPlace, start: Mapping[int, int], kept: Range) -> dict[int, tuple[int, int]]:
    """Return what is read again from `start` on, as far as it was read before.

    It is partition → first offset, and the one after the last.
    """
    ranges = {
        p: (max(low, start.get(p, place.offsets.get(p, low))), place.offsets.get(p, low))
        for p, (low, _) in kept.items()
    }
    return {partition: (low, end) for partition, (low, end) in ranges.items() if low < end}


def pieces(
    ranges: Mapping[str, Range], records_max: Callable[[], int]
) -> Iterator[dict[str, dict[int, tuple[int, int]]]]:
    """Cut ranges of several streams into pieces of at most `records_max` records each.

    At least one record of each partition is in a piece; the bound is asked for each.
    """
    left = {name: dict(found) for name, found in ranges.items()}
    while any(left.values()):
        share = max(1, records_max() // sum(map(len, left.values())))
        yield {
            name: {p: (start, min(end, start + share)) for p, (start, end) in found.items()}
            for name, found in left.items()
            if found
        }
        left = {
            name: {
                p: (start + share, end) for p, (start, end) in found.items() if start + share < end
            }
            for name, found in left.items()
        }


def moved(
    place: StreamPlace,
    ranges: Range,
    kept: Range,
    tops: Mapping[int, int],
    received_at: Mapping[int, int],
    *,
    now_ms: int,
) -> StreamPlace:
    """The place after a batch of the stream.

    `tops`, `received_at`: of the batch, partition → latest event time, latest reception.

    `open_from` and `late_from` are left to who knows the minutes.
    """
    offsets = place.offsets | {partition: end for partition, (_, end) in ranges.items()}
    all_tops = place.tops | {
        partition: max(at, place.tops.get(partition, at)) for partition, at in tops.items()
    }
    left = {
        partition: high - offsets.get(partition, low) for partition, (low, high) in kept.items()
    }
    top = progress(place.top, all_tops, behind(left, received_at, ranges, now_ms))
    days = noted(place.days, place.top, now_ms)
    return place.model_copy(
        update={"offsets": offsets, "tops": all_tops, "top": top, "closed": place.top, "days": days}
    )
