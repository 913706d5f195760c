"""Repeats and disorder on the way change no window: they end at the sequencer, before Spark."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from edgewake.cloud.analysis import shed_policy
from edgewake.cloud.kafka import topic_admin
from edgewake.protocol import frame, record, topics
from edgewake.protocol.record import PLACEMENT_HEADER, Discipline, Mode, Placement
from tests.analysis.support import (
    T0,
    Analysis,
    Feed,
    catch_up,
    left_out,
    lose_last_batch,
    registered,
    results,
    sql,
    topic_ends,
    truth,
    windows,
)
from tests.services import part, wait_until

FRAMES = 60


def test_repeats_and_disorder_before_the_sequencer_change_no_window(analysis: Analysis, feed: Feed, tmp_path: Path) -> None:
    rng = random.Random(3)
    topic_admin.ensure_topics(feed.config, [topics.UP])
    sent = []
    for device in ("d1", "d2"):
        numbers = list(range(1, FRAMES + 1))
        for number in numbers:
            times = [T0 + number * 2_000 + j for j in range(3)]
            sent.append((device, number, times))
            feed.sent += [{"device": device, "t": t, "speed": float(number)} for t in times]
    journey = sorted(sent + rng.choices(sent, k=FRAMES), key=lambda one: one[1] + rng.uniform(-5, 5))
    for device, number, times in journey:
        body = frame.encode(frame.Frame(1, number, number * 3 - 2, times, {"speed": [float(number)] * 3}))
        value = record.encode(device=device, stream=feed.name, mode=Mode.ACK, sent_at=None, received_at=times[-1] + 50, frame_bytes=body)
        placement = Placement(Discipline.ORDERED, feed.name, 1, number, number, number * 3 - 2, 3)
        feed.producer.produce(topics.UP, value, device, headers={PLACEMENT_HEADER: placement.encode()})
    feed.flush()
    config = tmp_path / "sequencer.toml"
    config.write_text(f'name = "sequencer-windows"\n[kafka]\nbootstrap = "{feed.config.bootstrap}"\n')
    (query,) = registered(
        sql(feed.name, "device, count(*) AS n, sum(speed) AS total", "window(event_time, '10 seconds'), device"), streams=[feed.stream]
    )

    with part("sequencer", config, tmp_path / "sequencer.log"):
        stream = topics.stream_topic(feed.name)
        wait_until(lambda: sum(topic_ends(feed.config, stream).values()) >= 2 * FRAMES, "the sequencer has passed on all frames")
        with analysis.running([query], feed) as lane:
            wait_until(lambda: lane.counters.readings >= len(feed.sent), "all readings")
            catch_up(lane, feed)

    found = {place: (row["n"], row["total"]) for place, row in truth(results(feed.config, query.query.name), "device").items()}
    expected = windows(feed.sent, 10_000, 10_000, lambda reading: (reading["device"],), "speed")
    assert found == {place: (len(values), sum(values)) for place, values in expected.items()}


def test_what_is_left_out_is_the_same_when_a_batch_or_the_whole_state_is_computed_again(
    analysis: Analysis, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shed_policy, "STEP_MS", 0)
    monkeypatch.setattr(shed_policy, "LEVEL_MAX", 2)
    text = "device, count(*) AS n, sum(speed) AS total", "window(event_time, '1 minute'), device"
    (query,) = registered(sql(feed.name, *text, shed="random above 1 second except where speed > 900"), streams=[feed.stream])
    for i in range(18):
        times = [T0 + i % 2 * 60_000 + i * 1_000 + j for j in range(40)]
        feed.send(times, device=f"d{i % 3}", received_at=T0, speed=[float(j) for j in range(40)])
    slow = analysis.with_config(batch_records_max=3)
    with slow.running([query], feed) as lane:
        (shedding,) = lane.record.shedding.values()
        assert [zone.level for zone in shedding.zones] == [1, 2]
        assert shedding.total > 0
    before, told = truth(results(feed.config, query.query.name), "device"), len(results(feed.config, query.query.name))
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
