"""Repeats and disorder on the way change no window: they end at the sequencer, before Spark."""

from __future__ import annotations

import random
from pathlib import Path

from edgewake.cloud.kafka import topic_admin
from edgewake.protocol import frame, record, topics
from edgewake.protocol.record import PLACEMENT_HEADER, Discipline, Mode, Placement
from tests.analysis.support import T0, Analysis, Feed, catch_up, registered, results, sql, topic_ends, truth, windows
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
