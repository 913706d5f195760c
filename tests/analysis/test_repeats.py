"""Repeats and disorder on the way change no window: they end at the sequencer, before Spark."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from edgewake.cloud.analysis import sequencer_watch
from edgewake.cloud.analysis.lanes import upstream_hold
from edgewake.cloud.analysis.plan import shed_policy
from edgewake.cloud.analysis.results.event_progress import progress_in_silence
from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.up_places import UpPlaces
from edgewake.protocol import topics
from edgewake.protocol.frames import frame, record
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.record import PLACEMENT_HEADER, Discipline, Mode, Placement
from tests.analysis.schedule.test_schedule import StandingClock
from tests.analysis.support import (
    T0,
    Analysis,
    Feed,
    catch_up,
    late_readings,
    left_out,
    lose_last_batch,
    registered,
    results,
    sql,
    topic_ends,
    truth,
    watermarks,
    windows,
)
from tests.services import part, wait_until

FRAMES = 60
NewFeed = Callable[[Mapping[str, FieldType]], Feed]


@pytest.mark.long
def test_repeats_and_disorder_before_the_sequencer_change_no_window(
    analysis: Analysis, feed: Feed, new_feed: NewFeed, tmp_path: Path
) -> None:
    """Control: the same journey of frames without numbers, in which nobody can tell a repeat."""
    rng = random.Random(3)
    bare = new_feed(feed.types)
    topic_admin.ensure_topics(feed.config, [topics.UP])
    sent = []
    for device in ("d1", "d2"):
        numbers = list(range(1, FRAMES + 1))
        for number in numbers:
            times = [T0 + number * 2_000 + j for j in range(3)]
            sent.append((device, number, times))
            feed.sent += [{"device": device, "t": t, "speed": float(number)} for t in times]
    journey = sorted(
        sent + rng.choices(sent, k=FRAMES), key=lambda one: one[1] + rng.uniform(-5, 5)
    )
    for name, discipline in ((feed.name, Discipline.ORDERED), (bare.name, Discipline.FREE)):
        for device, number, times in journey:
            body = frame.encode(
                frame.Frame(1, number, number * 3 - 2, times, {"speed": [float(number)] * 3})
            )
            value = record.encode(
                device=device,
                stream=name,
                mode=Mode.ACK,
                sent_at=None,
                received_at=times[-1] + 50,
                frame_bytes=body,
            )
            placement = Placement(discipline, name, 1, number, number, number * 3 - 2, 3)
            feed.producer.produce(
                topics.UP, value, device, headers={PLACEMENT_HEADER: placement.encode()}
            )
    feed.flush()
    config = tmp_path / "sequencer.toml"
    config.write_text(
        f'name = "sequencer-windows"\n[kafka]\nbootstrap = "{feed.config.bootstrap}"\n'
    )
    select = (
        "device, count(*) AS n, sum(speed) AS total",
        "window(event_time, '10 seconds'), device",
    )
    query, control = (
        registered(sql(one.name, *select), streams=[one.stream])[0] for one in (feed, bare)
    )

    with part("sequencer", config, tmp_path / "sequencer.log"):
        stream, free = topics.stream_topic(feed.name), topics.stream_topic(bare.name)
        wait_until(
            lambda: sum(topic_ends(feed.config, stream).values()) >= 2 * FRAMES,
            "the sequencer has passed on all frames",
        )
        wait_until(
            lambda: sum(topic_ends(feed.config, free).values()) >= 3 * FRAMES,
            "and all that have no numbers",
        )
        with analysis.running([query], feed) as lane:
            wait_until(lambda: lane.counters.readings >= len(feed.sent), "all readings")
            catch_up(lane, feed)
        analysis.run([control], bare)

    found, repeated = (
        {
            place: (row["n"], row["total"])
            for place, row in truth(results(feed.config, one.query.name), "device").items()
        }
        for one in (query, control)
    )
    expected = windows(feed.sent, 10_000, 10_000, lambda reading: (reading["device"],), "speed")
    assert found == {place: (len(values), sum(values)) for place, values in expected.items()}
    assert (
        sum(n for n, _ in repeated.values())
        == 3 * len(journey)
        == sum(n for n, _ in found.values()) + 3 * FRAMES
    ), "control"


def test_what_is_left_out_is_the_same_when_a_batch_or_the_whole_state_is_computed_again(
    analysis: Analysis, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shed_policy, "STEP_MS", 0)
    monkeypatch.setattr(shed_policy, "LEVEL_MAX", 2)
    text = "device, count(*) AS n, sum(speed) AS total", "window(event_time, '1 minute'), device"
    (query,) = registered(
        sql(feed.name, *text, shed="random above 1 second except where speed > 900"),
        streams=[feed.stream],
    )
    for i in range(18):
        times = [T0 + i % 2 * 60_000 + i * 1_000 + j for j in range(40)]
        feed.send(times, device=f"d{i % 3}", received_at=T0, speed=[float(j) for j in range(40)])
    slow = analysis.with_config(batch_records_max=3)
    with slow.running([query], feed) as lane:
        (shedding,) = lane.record.shedding.values()
        assert [zone.level for zone in shedding.zones] == [1, 2]
        assert shedding.total > 0
    before, told = (
        truth(results(feed.config, query.query.name), "device"),
        len(results(feed.config, query.query.name)),
    )
    lacking = left_out(feed.config, query.query.name)

    lose_last_batch(lane.checkpoint)
    slow.run([query], feed)
    assert len(results(feed.config, query.query.name)) == told, "nothing is new in it"

    shutil.rmtree(lane.checkpoint)
    for place, row in before.items():
        feed.send([place[0] + 59_999], device=row["device"], received_at=T0, speed=[1_000.0])
    slow.run([query], feed)
    after = truth(results(feed.config, query.query.name), "device")
    assert {place: (row["n"], row["total"]) for place, row in after.items()} == {
        place: (row["n"] + 1, row["total"] + 1_000) for place, row in before.items()
    }
    assert left_out(feed.config, query.query.name) == lacking
    assert any("kept" in row for row in after.values())


@pytest.mark.long
def test_a_sequencer_that_is_away_makes_nothing_late_that_it_has_not_passed_on(
    analysis: Analysis, feed: Feed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """To the analysis the stream falls silent, and without the watch the window would be final.

    The time of day stands still.
    """
    monkeypatch.setattr(sequencer_watch, "LOOK_S", 0.1)
    monkeypatch.setattr(upstream_hold, "STALLED_MS", -1)
    topic_admin.ensure_topics(feed.config, [topics.UP])
    config = tmp_path / "sequencer.toml"
    config.write_text(f'name = "sequencer-away"\n[kafka]\nbootstrap = "{feed.config.bootstrap}"\n')
    (query,) = registered(
        sql(feed.name, "count(*) AS n", "window(event_time, '2 seconds')", lateness="0 seconds"),
        streams=[feed.stream],
    )
    name, begin = query.query.name, T0
    lane = analysis.with_config(idle_s=0.5).lane([query], [feed.stream])
    lane.clock = clock = StandingClock(begin + 100)
    watch = sequencer_watch.SequencerWatch(feed.config, clock)
    lane.upstream.hold = watch.hold
    places = UpPlaces(feed.config, "test-places")
    with (
        part("sequencer", config, tmp_path / "sequencer.log") as process,
        closing(watch),
        closing(places),
    ):
        watch.start()
        put_up(feed, 1, begin)
        lane.start()
        try:
            wait_until(lambda: results(feed.config, name), "the first reading is counted")
            wait_until(lambda: is_all_sequenced(places), "the sequencer has said so")
            process.kill()
            put_up(feed, 2, begin + 1)
            wait_until(lambda: watch.hold(clock.now_ms()) is not None, "something waits")
            wait_until(
                lambda: (
                    progress_in_silence(
                        begin, lane.record.tops, int(lane.silent_s() * 1000), [query.query]
                    )
                    == begin + 2_000
                ),
                "the window would be over",
            )
            lane.advance_in_silence()
            assert watermarks(feed.config, name)[-1:] != [begin + 2_000]
            process.start()
            wait_until(
                lambda: results(feed.config, name)[-1]["n"] == 2, "the second one is counted"
            )

            def is_final() -> bool:
                lane.advance_in_silence()
                return bool(watermarks(feed.config, name)[-1:] == [begin + 2_000])

            wait_until(is_final, "then it is final")
        finally:
            lane.stop()
    assert late_readings(feed.config, name) == []


def is_all_sequenced(places: UpPlaces) -> bool:
    ends, passed = places.ends(), places.sequenced()
    return all(passed.get(partition, 0) >= end for partition, end in ends.items() if end)


def put_up(feed: Feed, number: int, at: int) -> None:
    """A frame of one reading on `ew.up`, as a bridge writes it."""
    body = frame.encode(frame.Frame(1, number, number, [at], {"speed": [1.0]}))
    value = record.encode(
        device="d1",
        stream=feed.name,
        mode=Mode.ACK,
        sent_at=None,
        received_at=at + 50,
        frame_bytes=body,
    )
    placement = Placement(Discipline.ORDERED, feed.name, 1, number, number, number, 1)
    feed.producer.produce(topics.UP, value, "d1", headers={PLACEMENT_HEADER: placement.encode()})
    feed.flush()
