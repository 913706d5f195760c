"""Where the summaries stand, stream by stream, and what is open: decided without Kafka and
Spark.
"""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.analysis.minutes.open_minutes import LATENESS_MS, OpenMinutes, open_from, parted
from edgewake.cloud.analysis.minutes.set_aside import SetAside
from edgewake.cloud.analysis.minutes.summary_record import (
    StreamPlace,
    SummaryRecord,
    again,
    kept_places,
    lost,
    moved,
    next_ranges,
    pieces,
)
from edgewake.cloud.summaries.summary import MINUTE_MS, Record, Series, Sketch, Summary
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.sketches.sketch import Numbers, SketchKind

T0 = 1_790_000_040_000


def minute(start_ms: int, *values: float, stream: str = "s") -> Record:
    return Record(
        Series(stream, "x"),
        start_ms,
        start_ms + MINUTE_MS,
        Summary(len(values), Numbers.of(list(values))),
    )


def test_a_batch_reads_of_every_stream_that_has_something_and_of_none_that_waits_too_long() -> None:
    kept = {"busy": {0: (0, 1000), 1: (0, 3)}, "calm": {0: (5, 7)}, "empty": {0: (4, 4)}}
    places = {
        "busy": StreamPlace(offsets={0: 10, 1: 3}),
        "calm": StreamPlace(),
        "empty": StreamPlace(),
    }
    assert next_ranges(places, kept, 100) == {"busy": {0: (10, 60)}, "calm": {0: (5, 7)}}
    assert next_ranges(places, kept, 1) == {"busy": {0: (10, 11)}, "calm": {0: (5, 6)}}
    assert next_ranges({}, kept, 100) == {}


def test_what_retention_took_is_said_and_the_rest_is_read() -> None:
    place = StreamPlace(offsets={0: 10}, open_from={0: 4})
    assert lost(place, {0: (12, 20), 1: (3, 5)}) == {0: (10, 12)}
    assert next_ranges({"s": place}, {"s": {0: (12, 20)}}, 100) == {"s": {0: (12, 20)}}
    assert again(place, place.open_from, {0: (6, 20), 1: (0, 5)}) == {0: (6, 10)}
    assert again(place, place.late_from, {0: (6, 20), 1: (0, 5)}) == {}


def test_a_topic_made_anew_is_read_from_its_beginning_and_one_that_is_missing_is_left() -> None:
    record = SummaryRecord(
        streams={
            "anew": StreamPlace(offsets={0: 10}, top=5),
            "same": StreamPlace(offsets={0: 4}),
            "gone": StreamPlace(),
        }
    )
    kept = {"anew": {0: (0, 9)}, "same": {0: (0, 4)}, "new": {0: (0, 1)}}
    places = kept_places(record, ["anew", "same", "gone", "new"], kept)
    assert places == {"anew": StreamPlace(), "same": record.streams["same"], "new": StreamPlace()}


@given(
    st.dictionaries(
        st.sampled_from("abc"),
        st.dictionaries(st.integers(0, 3), st.tuples(st.integers(0, 9), st.integers(0, 30))),
    )
)
def test_pieces_are_the_ranges_in_order_and_small(
    ranges: dict[str, dict[int, tuple[int, int]]],
) -> None:
    ranges = {
        name: {p: (start, start + count) for p, (start, count) in found.items() if count}
        for name, found in ranges.items()
    }
    at = {(name, p): start for name, found in ranges.items() for p, (start, _) in found.items()}
    for piece in pieces(ranges, lambda: 7):
        assert sum(end - start for found in piece.values() for start, end in found.values()) <= max(
            7, len(at)
        )
        for name, found in piece.items():
            for p, (start, end) in found.items():
                assert at[name, p] == start < end
                at[name, p] = end
    assert at == {(name, p): end for name, found in ranges.items() for p, (_, end) in found.items()}


def test_each_stream_has_its_own_event_time() -> None:
    """A partition that is behind holds its stream's event time up, and that of no other."""
    place = StreamPlace(offsets={0: 5, 1: 5}, tops={0: T0, 1: T0}, top=T0)
    kept = {0: (0, 10), 1: (0, 100)}
    after = moved(
        place,
        {0: (5, 10), 1: (5, 10)},
        kept,
        {0: T0 + 500, 1: T0 + 100},
        {0: T0 + 500, 1: T0 - 60_000},
        now_ms=T0 + 600,
    )
    assert (after.offsets, after.top, after.closed) == ({0: 10, 1: 10}, T0 + 100, T0)
    after = moved(after, {1: (10, 100)}, kept, {1: T0 + 300}, {1: T0 + 550}, now_ms=T0 + 600)
    assert (after.top, after.closed) == (T0 + 500, T0 + 100)


def test_a_minute_is_whole_however_its_readings_came_and_then_closed() -> None:
    minutes = OpenMinutes()
    starts = {"s": {0: 0, 1: 7}}
    minutes.add([minute(T0, 1.0)], starts)
    (whole,) = minutes.add([minute(T0, 2.0, 3.0)], {"s": {0: 4, 1: 9}})
    assert whole.summary == Summary(3, Numbers.of([1.0, 2.0, 3.0]))
    minutes.close("other", T0 * 2)
    assert minutes.of("s") == [whole]
    minutes.close("s", T0 + MINUTE_MS + LATENESS_MS)
    assert (minutes.of("s"), len(minutes)) == ([], 0)


def test_readings_of_closed_minutes_are_late_and_a_start_reads_open_ones_again() -> None:
    records = [minute(T0, 1.0), minute(T0 + MINUTE_MS, 1.0), minute(T0, 1.0, stream="other")]
    for top in range(T0 + LATENESS_MS, T0 + LATENESS_MS + 3 * MINUTE_MS, MINUTE_MS // 2):
        in_time, late = parted(records, {"s": top, "other": None})
        assert records[2] in in_time
        assert [one for one in late if one.start_ms >= open_from(top)] == []
        assert [
            one for one in in_time if one.start_ms < open_from(top) and one.series.stream == "s"
        ] == []
    assert parted(records, {"s": T0 + LATENESS_MS + MINUTE_MS})[1] == records[:1]
    assert open_from(None) == 0


def test_after_a_restart_it_is_read_from_where_the_oldest_open_minute_began() -> None:
    minutes = OpenMinutes()
    minutes.add([minute(T0, 1.0)], {"s": {0: 3}})
    minutes.add([minute(T0 + MINUTE_MS, 1.0)], {"s": {0: 8}})
    offsets = {0: 20, 1: 6}
    assert minutes.open_from("s", offsets) == {0: 3, 1: 0}, (
        "a partition that was not there yet is read from its beginning"
    )
    minutes.close("s", T0 + MINUTE_MS + LATENESS_MS)
    assert minutes.open_from("s", offsets) == {0: 8, 1: 0}
    minutes.forget("s")
    assert minutes.open_from("s", offsets) == offsets


def test_beyond_the_bound_the_oldest_minutes_are_to_be_closed() -> None:
    minutes = OpenMinutes()
    for i, stream in enumerate(("a", "b", "a")):
        sketch = {SketchKind.HLL: Sketch(1, bytes(60 << 20))}
        minutes.add(
            [
                Record(
                    Series(stream, "x"),
                    T0 + i * MINUTE_MS,
                    T0 + (i + 1) * MINUTE_MS,
                    Summary(1, sketches=sketch),
                )
            ],
            {stream: {}},
        )
    assert minutes.over_bound() == {"a": T0 + MINUTE_MS + LATENESS_MS}
    minutes.close("a", T0 + MINUTE_MS + LATENESS_MS)
    assert (minutes.over_bound(), len(minutes)) == ({}, 2)


def test_a_stream_that_cannot_be_summed_up_is_found_and_left_out_and_tried_again() -> None:
    clock = FakeClock()
    aside = SetAside(clock, random.Random(1))
    streams = ["a", "bad", "c"]
    assert aside.chosen(streams) == streams
    aside.failed(streams, "boom", records=100)
    tried = []
    while len(alone := aside.chosen(streams)) == 1:
        tried += alone
        if alone == ["bad"]:
            aside.failed(alone, "boom", records=1)
        else:
            aside.worked(alone)
    assert tried == streams
    assert alone == ["a", "c"]
    assert aside.causes == {"bad": "boom"}
    clock.advance(30)
    assert aside.chosen(streams) == ["bad"]
    aside.worked(["bad"])
    assert (aside.chosen(streams), aside.causes) == (streams, {})


def test_a_stream_that_fails_is_tried_again_at_once_until_one_record_was_too_much() -> None:
    aside = SetAside(FakeClock(), random.Random(1))
    for records in (20_000, 625, 19):
        aside.failed(["big"], "too large", records=records)
        assert (aside.chosen(["big", "a"]), aside.causes) == (["big"], {})
    aside.failed(["big"], "too large", records=1)
    assert aside.chosen(["big", "a"]) == ["a"]
    aside.worked(["big"])
    assert (aside.causes, aside.chosen(["big", "a"])) == ({}, ["big", "a"])
