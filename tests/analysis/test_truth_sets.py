"""Eleven recorded sets at full speed through an analysis that is killed, in three orders: in the
end every window is what the file says.

Most of these last longer than any window may stay open, some for years, and devices come shuffled
or hours late. What comes too late for its window is counted as late, and a repair folds it in: then
nothing is missing and nothing differs. Only with EDGEWAKE_TRUTH, which says how many readings of a
set are taken at most (`make truth`).
"""

from __future__ import annotations

import itertools
import math
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.frames.field_type import FieldType
from tests.analysis.recordings import DAY_MS, HOUR_MS, RECORDINGS, Recorded, Recording
from tests.analysis.repair.test_repairs import ask, history
from tests.analysis.support import (
    Feed,
    declare,
    late_readings,
    register,
    results,
    sql,
    topic_ends,
    truth,
    unique,
)
from tests.analysis.test_process import NewFeed, progress
from tests.services import Process, part, wait_until

MOST: Final = int(os.environ.get("EDGEWAKE_TRUTH") or 0)
READINGS: Final = 25
"""Of a frame."""
DELAY_MS: Final = 6 * HOUR_MS
TIMEOUT_S: Final = 3600
KILLS: Final = 2
FRAMES_MAX: Final = max(20, MOST // 50)
"""Of a micro-batch: every set has some tens of them."""
BATCHES: Final = 40
"""Offsets of `ew.lanes`, two a batch, from one kill to the next."""
CLOCK: Final = "clock"
"""A device that is in no window of interest: it lets event time go on to the end."""

Frame = list[Recorded]
pytestmark = pytest.mark.skipif(
    not MOST, reason="EDGEWAKE_TRUTH says how many readings of each set; make truth"
)


def by_time(frames: list[Frame]) -> list[Frame]:
    return sorted(frames, key=lambda frame: frame[0].t)


def shuffled(frames: list[Frame]) -> list[Frame]:
    return random.Random(7).sample(frames, len(frames))


def devices_hours_late(frames: list[Frame]) -> list[Frame]:
    """Every third device comes six hours after the others."""
    late = set(sorted({frame[0].device for frame in frames})[::3])
    return sorted(frames, key=lambda frame: frame[0].t + DELAY_MS * (frame[0].device in late))


ORDERS: Final = (by_time, shuffled, devices_hours_late)


def frames_of(readings: list[Recorded]) -> list[Frame]:
    """As each device sends them."""
    devices: dict[str, list[Recorded]] = {}
    for reading in readings:
        devices.setdefault(reading.device, []).append(reading)
    return [one[i : i + READINGS] for one in devices.values() for i in range(0, len(one), READINGS)]


class Set:
    """A recording, its stream and its query."""

    def __init__(self, recording: Recording, new_feed: NewFeed) -> None:
        self.recording = recording
        self.feed: Feed = new_feed(dict.fromkeys(recording.fields, FieldType.NUMBER))
        self.query = unique("truth")
        self.readings = recording.readings(MOST)
        self.end = max(reading.t for reading in self.readings) + 1
        self.expected: dict[tuple[int, str, str], list[float]] = {}
        self.late = 0
        self.repaired: dict[str, Any] = {}

    def register(self) -> None:
        """Stream, then query."""
        recording = self.recording
        text = sql(
            f"{self.feed.name} UNPIVOT (value FOR metric IN ({', '.join(recording.fields)}))",
            "device, metric, count(value) AS n, avg(value) AS mean, min(value) AS low, max(value) "
            "AS high",
            f"window(event_time, '{recording.size_ms} milliseconds', '{recording.slide_ms} "
            "milliseconds'), device, metric",
            name=self.query,
            lateness="1 minute",
            reopen="8 days",
        )
        declare(self.feed)
        register(self.feed, text, name=self.query)

    def send(self, order: Callable[[list[Frame]], list[Frame]]) -> None:
        """All readings, as devices of their own."""
        for frame in order(frames_of(self.readings)):
            columns: dict[str, Any] = {
                field: [one.values.get(field) for one in frame] for field in self.recording.fields
            }
            device = f"{frame[0].device}.{order.__name__}"
            self.feed.send([one.t for one in frame], device=device, received_at=self.end, **columns)
            for one in frame:
                self._expect(device, one)
        self.feed.sent.clear()
        self.feed.flush()

    def _expect(self, device: str, one: Recorded) -> None:
        """The oracle: into every window that it lies in, by trying them."""
        size_ms, slide_ms = self.recording.size_ms, self.recording.slide_ms
        start = one.t // slide_ms * slide_ms
        while start + size_ms > one.t:
            for metric, value in one.values.items():
                self.expected.setdefault((start, device, metric), []).append(value)
            start -= slide_ms

    def is_computed(self) -> bool:
        """Has the lane committed all that was sent?"""
        ends = topic_ends(self.feed.config, topics.stream_topic(self.feed.name))
        offsets = (
            progress(self.feed.config, self.query)
            .get("reached", {})
            .get(self.feed.name, {})
            .get("offsets", {})
        )
        return all(
            int(offsets.get(str(partition), 0)) >= end for partition, end in ends.items() if end
        )

    def close(self) -> None:
        """Send what lets every window be closed."""
        at = self.end + 9 * DAY_MS + 2 * self.recording.size_ms
        values: dict[str, Any] = {self.recording.fields[0]: [0.0]}
        for partition in topic_ends(self.feed.config, topics.stream_topic(self.feed.name)):
            self.feed.send(
                [at],
                device=CLOCK,
                received_at=at,
                partition=partition,
                **values,
            )
        self.feed.flush()

    def found(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        """The latest rows."""
        rows = truth(results(self.feed.config, self.query), "device", "metric")
        return {place: row for place, row in rows.items() if place[1] != CLOCK}

    def differences(self) -> Counter[str]:
        """What of the results differs from the file."""
        found, wrong = self.found(), Counter[str]()
        wrong["missing"] = len(self.expected.keys() - found.keys())
        wrong["too many"] = len(found.keys() - self.expected.keys())
        for place in self.expected.keys() & found.keys():
            row, values = found[place], self.expected[place]
            same = (row["n"], row["low"], row["high"]) == (len(values), min(values), max(values))
            wrong["different"] += not (
                same
                and math.isclose(
                    row["mean"], math.fsum(values) / len(values), rel_tol=1e-12, abs_tol=1e-12
                )
            )
        return +wrong


def batches(config: KafkaConfig) -> int:
    """A number that grows with each micro-batch that is committed."""
    return topic_ends(config, topics.LANES)[0]


def is_all_computed(sets: list[Set], sender: threading.Thread) -> bool:
    """Is nothing left to send and to compute?"""
    return not sender.is_alive() and all(one.is_computed() for one in sets)


def kill_now_and_then(process: Process, sets: list[Set], sender: threading.Thread) -> int:
    """Kill it while it computes, and start it again; how often."""
    kills, config = 0, sets[0].feed.config
    while kills < KILLS:
        wanted = batches(config) + BATCHES

        def has_computed(wanted: int = wanted) -> bool:
            return batches(config) >= wanted or is_all_computed(sets, sender)

        wait_until(has_computed, "it computes", timeout_s=TIMEOUT_S)
        if is_all_computed(sets, sender):
            break
        process.kill()
        process.start()
        kills += 1
    return kills


@pytest.mark.long
def test_eleven_sets_are_the_truth_in_the_end(
    kafka_config: KafkaConfig, spark_jars: Path, tmp_path: Path, new_feed: NewFeed
) -> None:
    config = tmp_path / "analysis.toml"
    config.write_text(
        f'data_dir = "{tmp_path}/data"\njars_dir = "{spark_jars}"\ntrigger_ms = '
        "0\nstate_partitions = 1\nsummary_interval_s = 0\n"
        f"session_s = 2\n"
        f'driver_memory = "1g"\nbatch_records_max = {FRAMES_MAX}\n[kafka]\nbootstrap = '
        f'"{kafka_config.bootstrap}"\n'
    )
    sets = [Set(recording, new_feed) for recording in RECORDINGS]
    for one in sets:
        one.register()
    process = part("analysis", config, tmp_path / "analysis.log")
    process.start()
    began_s = time.monotonic()

    def send() -> None:
        for order, one in itertools.product(ORDERS, sets):
            one.send(order)

    sender = threading.Thread(target=send)
    try:
        sender.start()
        kills = kill_now_and_then(process, sets, sender)
        sender.join()
        wait_until(
            lambda: all(one.is_computed() for one in sets), "all is computed", timeout_s=TIMEOUT_S
        )
        computed_s = time.monotonic() - began_s
        for one in sets:
            one.late = sum(row["readings"] for row in late_readings(one.feed.config, one.query))
            one.close()
        wait_until(
            lambda: all(one.is_computed() for one in sets), "all is closed", timeout_s=TIMEOUT_S
        )
        repair_all(sets)
    finally:
        process.stop()
    tell(sets, kills, computed_s)
    assert kills
    assert {one.recording.name: dict(one.differences()) for one in sets} == {
        one.recording.name: {} for one in sets
    }


def repair_all(sets: list[Set]) -> None:
    """Windows that readings came too late for."""
    for one in sets:
        repair = ask(one.feed, one.query, min(reading.t for reading in one.readings), one.end)

        def is_over(one: Set = one, repair: str = repair) -> bool:
            one.repaired = history(one.feed, repair)[-1]
            return one.repaired["state"] in ("done", "refused")

        wait_until(is_over, f"{one.recording.name} is repaired", timeout_s=TIMEOUT_S)
    assert {one.repaired["state"] for one in sets} == {"done"}, [one.repaired for one in sets]


def tell(sets: list[Set], kills: int, computed_s: float) -> None:
    """A table, for docs/benchmarks.md."""
    total = sum(3 * len(one.readings) for one in sets)
    print(
        f"\n{total} readings of {len(sets)} sets in three orders, {kills} kills: computed after "
        f"{computed_s:.0f} s"
    )
    print(
        "| set | readings | windows | late | rows repaired | missing | different "
        "|\n|---|---|---|---|---|---|---|"
    )
    for one in sets:
        wrong, told = one.differences(), one.repaired["added"] + one.repaired["changed"]
        cells = (
            one.recording.name,
            3 * len(one.readings),
            len(one.expected),
            one.late,
            told,
            wrong["missing"],
            wrong["different"],
        )
        print("| " + " | ".join(map(str, cells)) + " |")
