"""A recorded half day through the analysis as a process that is killed: in the end the results are
what the file says, all of it.

`make truth` runs the whole recording instead of every tenth message of its beginning, and kills
more often.
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
import os
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.frames.field_type import FieldType
from tests.analysis.support import (
    Feed,
    data_file,
    declare,
    register,
    results,
    sql,
    truth,
    unique,
    windows,
)
from tests.analysis.test_process import READY
from tests.services import Process, part, wait_until

FIELDS: Final = ("humidity", "smoke", "temp")
IS_WHOLE: Final = bool(os.environ.get("EDGEWAKE_TRUTH"))
LINES: Final = None if IS_WHOLE else 40_000
STRIDE: Final = 1 if IS_WHOLE else 10
READINGS: Final = 25
"""Of a frame."""
DELAY_MS: Final = 6 * 3_600_000
KILLS: Final = 4 if IS_WHOLE else 1
TIMEOUT_S: Final = 3600 if IS_WHOLE else 240
PATH: Final = data_file("iot_env_telemetry", "raw_data.jsonl.gz")

Frame = Sequence[Mapping[str, Any]]
"""Messages of one device."""


def recorded() -> list[Frame]:
    """The recording as frames, in the order of their first messages."""
    devices: dict[str, list[Mapping[str, Any]]] = {}
    with gzip.open(PATH, "rt", encoding="utf-8") as lines:
        for line in itertools.islice(filter(str.strip, lines), 0, LINES, STRIDE):
            message = json.loads(line)
            devices.setdefault(message["device"], []).append(message)
    return sorted(
        (one[i : i + READINGS] for one in devices.values() for i in range(0, len(one), READINGS)),
        key=sent_at,
    )


def sent_at(frame: Frame) -> int:
    return int(frame[0]["ts"] * 1000)


def shuffled(frames: list[Frame]) -> list[Frame]:
    return random.Random(7).sample(frames, len(frames))


def one_device_after_the_other(frames: list[Frame]) -> list[Frame]:
    return sorted(frames, key=lambda frame: (frame[0]["device"], sent_at(frame)))


def one_device_six_hours_late(frames: list[Frame]) -> list[Frame]:
    late = frames[0][0]["device"]
    return sorted(
        frames, key=lambda frame: sent_at(frame) + DELAY_MS * (frame[0]["device"] == late)
    )


ORDERS: Final = (shuffled, one_device_after_the_other, one_device_six_hours_late)


def send(feed: Feed, order: Callable[[list[Frame]], list[Frame]], frames: list[Frame]) -> None:
    """As devices of their own.

    Received when the furthest reading of all was made: whatever comes later in the list came later.
    """
    received_at = max(int(message["ts"] * 1000) for frame in frames for message in frame)
    for frame in order(frames):
        columns: dict[str, Any] = {
            field: [message["data"].get(field) for message in frame] for field in FIELDS
        }
        t = [int(message["ts"] * 1000) for message in frame]
        feed.send(
            t, device=f"{frame[0]['device']}.{order.__name__}", received_at=received_at, **columns
        )
    feed.flush()


def assert_is_true(feed: Feed, query: str) -> None:
    found = truth(results(feed.config, query), "device", "metric")
    flat = [
        {"t": r["t"], "device": r["device"], "metric": m, "value": r[m]}
        for r in feed.sent
        for m in FIELDS
        if m in r
    ]
    expected = windows(flat, 600_000, 300_000, lambda r: (r["device"], r["metric"]), "value")
    assert len(expected) > 500
    assert set(found) == set(expected)
    for place, values in expected.items():
        row = found[place]
        assert (row["n"], row["low"], row["high"]) == (len(values), min(values), max(values))
        assert math.isclose(row["mean"], math.fsum(values) / len(values), rel_tol=1e-12)


@pytest.mark.skipif(not PATH.exists(), reason="no recorded data at ../shared/data")
def test_in_the_end_the_results_are_the_truth_whatever_the_order_and_the_kills(
    kafka_config: KafkaConfig,
    spark_jars: Path,
    tmp_path: Path,
    new_feed: Callable[[Mapping[str, FieldType]], Feed],
) -> None:
    config = tmp_path / "analysis.toml"
    config.write_text(
        f'data_dir = "{tmp_path}/data"\njars_dir = "{spark_jars}"\ntrigger_ms = '
        "100\ncalm_trigger_ms = 0\nstate_partitions = 1\n"
        f"summary_interval_s = 0\nsession_s = 2\n"
        'driver_memory = "512m"\nbatch_records_max = '
        f'{400 if IS_WHOLE else 40}\n[kafka]\nbootstrap = "{kafka_config.bootstrap}"\n'
    )
    feed, name = new_feed(dict.fromkeys(FIELDS, FieldType.NUMBER)), unique("truth")
    text = sql(
        f"{feed.name} UNPIVOT (value FOR metric IN ({', '.join(FIELDS)}))",
        "device, metric, count(value) AS n, avg(value) AS mean, min(value) AS low, max(value) AS "
        "high",
        "window(event_time, '10 minutes', '5 minutes'), device, metric",
        name=name,
        lateness="1 minute",
        reopen="2 days",
    )
    declare(feed)
    register(feed, text, name=name)
    frames = recorded()
    for order in ORDERS:
        send(feed, order, frames)
    wanted = 2 * sum(metric in reading for reading in feed.sent for metric in FIELDS)

    def counted() -> int:
        return sum(
            row["n"] for row in truth(results(feed.config, name), "device", "metric").values()
        )

    def kill_while_it_computes(before: int) -> int:
        start(process)
        wait_until(lambda: counted() > before, "it goes on", timeout_s=TIMEOUT_S)
        process.kill()
        after = counted()
        assert after < wanted, "it was killed after all was done"
        return after

    process = part("analysis", config, tmp_path / "analysis.log")
    try:
        before = 0
        for _ in range(KILLS):
            before = kill_while_it_computes(before)
        start(process)
        wait_until(lambda: counted() == wanted, "all is counted", timeout_s=TIMEOUT_S)
    finally:
        process.stop()
    assert_is_true(feed, name)


def start(process: Process) -> None:
    ready = process.output().count(READY)
    process.start()
    wait_until(
        lambda: process.output().count(READY) > ready, "the analysis is ready", timeout_s=TIMEOUT_S
    )
