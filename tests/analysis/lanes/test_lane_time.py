"""How far event time comes in a lane, and what is said of what it waits for. No Kafka, no Spark."""

from __future__ import annotations

import pytest

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.lanes.lane_time import LaneTime, Upstream
from edgewake.cloud.analysis.plan.combined_topics import CombinedTopics
from edgewake.cloud.analysis.plan.observed import Observed
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.frames.stream import Stream
from tests.analysis.support import registered, sql

T0 = 1_790_000_040_000
CONFIG = AnalysisConfig(kafka=KafkaConfig(bootstrap="127.0.0.1:9092"), idle_s=30)
RECORD = LaneRecord(stream="s", lane="plain", top=T0, tops={0: T0, 1: T0}, offsets={})
TOPIC = "ew.s.s"


@pytest.fixture
def upstream() -> Upstream:
    return Upstream()


@pytest.fixture
def time(upstream: Upstream) -> LaneTime:
    return LaneTime(CONFIG, RECORD, CombinedTopics((TOPIC,)), 2, upstream)


def after(time: LaneTime, *, unread: int = 0) -> int | None:
    """A batch with a reading of partition 0 ten seconds later, received at once."""
    at = T0 + 10_000
    observed = Observed(1, 1, at, 0, {0: at}, {0: at})
    time.observe(observed)
    return time.after(RECORD, observed, {TOPIC: {0: 5, 1: 5}}, {0: 0, 1: unread}, at)


def test_it_goes_on_with_the_readings_and_waits_for_nothing(time: LaneTime) -> None:
    assert after(time) == T0 + 10_000
    assert time.waits(RECORD, T0 + 10_000).detail == ""


def test_it_stands_where_the_partition_stands_that_has_unread_readings(time: LaneTime) -> None:
    assert after(time, unread=3) == T0
    why = "event time waits for unread records in 1 partition"
    assert time.waits(RECORD, T0 + 10_000) == (why, False)
    assert time.waits(RECORD, T0 + 19_999) == (why, False), "it may be reading up"
    assert time.waits(RECORD, T0 + 20_000) == (why, True)
    time.waits_for_nothing()
    assert not time.waits(RECORD, T0 + 20_000).stands


def test_a_lane_that_reads_up_does_not_stand_while_its_event_time_moves(time: LaneTime) -> None:
    for turn in range(5):
        after(time, unread=3)
        record = RECORD.model_copy(update={"top": T0 + turn})
        assert not time.waits(record, T0 + 8_000 * turn).stands


def test_it_does_not_pass_what_a_sequencer_holds_and_says_so(
    time: LaneTime, upstream: Upstream
) -> None:
    upstream.hold, upstream.why = lambda _: T0 + 4_000, lambda _: "a sequencer is away"
    assert after(time) == T0 + 4_000
    assert time.waits(RECORD, T0 + 10_000) == ("a sequencer is away", True)


def test_in_silence_it_goes_on_to_the_end_of_the_last_window_and_no_further(
    time: LaneTime, upstream: Upstream
) -> None:
    text = sql("s", "count(*) AS n", "window(event_time, '1 minute')", lateness="5 seconds")
    queries = [one.query for one in registered(text, streams=[Stream(name="s")])]
    reached = [time.in_silence(RECORD, silent_s, queries, T0) for silent_s in (40.0, 3_600.0)]
    assert reached == [T0 + 40_000, T0 + 65_000]
    upstream.hold = lambda _: T0 + 1
    assert time.in_silence(RECORD, 40.0, queries, T0) == T0 + 1


def test_that_no_reading_comes_is_said_only_of_a_stream_that_had_some(time: LaneTime) -> None:
    assert time.waits(RECORD, T0, "no readings arrive") == ("no readings arrive", False)
    nothing = RECORD.model_copy(update={"tops": {}})
    assert time.waits(nothing, T0, "no readings arrive") == ("", False)


def test_of_a_stream_with_unread_readings_it_is_not_said_that_none_come(time: LaneTime) -> None:
    after(time, unread=3)
    assert "unread records" in time.waits(RECORD, T0, "no readings arrive").detail


def test_another_thread_may_ask_while_a_batch_ends(time: LaneTime) -> None:
    """The batch has read everything between two looks of who asks."""

    class Record(LaneRecord):
        def __getattribute__(self, name: str) -> object:
            if name == "top":
                time._stood_at = None
            return super().__getattribute__(name)

    after(time, unread=3)
    assert not time.waits(RECORD, T0).stands
    record = Record(**RECORD.model_dump())
    assert not time.waits(record, T0 + 1_000).stands
