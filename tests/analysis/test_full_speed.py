"""Recorded sets that are sent at full speed lose no window, in whatever order, and a live stream
beside them stands for none of it.

They are sent as `edgewake replay --times recorded` does, in frames of each device, to partitions
that pass them on unevenly. The oracle tries every window, and knows nothing of event time.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import pytest

from edgewake.protocol.frames.field_type import FieldType
from tests.analysis.recordings import HOUR_MS, MINUTE_MS, RECORDINGS, Recorded
from tests.analysis.support import (
    Analysis,
    Feed,
    catch_up,
    data_file,
    late_readings,
    registered,
    results,
    sql,
    truth,
    watermarks,
    windows,
)
from tests.services import wait_until

NewFeed = Callable[[Mapping[str, FieldType]], Feed]
FRAME = 100
UNEVEN_S = 1.5
"""So much later than another one a partition passes on what was sent at the same time."""


class Played(NamedTuple):
    """A set, its field, and the windows that are asked of it."""

    recording: str
    value: str
    size_ms: int
    lateness: str


SETS = (
    Played("iot_env_telemetry", "temp", 10 * MINUTE_MS, "10 minutes"),
    Played("smart_meters_sgsc", "kwh", 24 * HOUR_MS, "1 day"),
)


def by_time(readings: list[Recorded]) -> list[Recorded]:
    return sorted(readings, key=lambda one: one.t)


def by_device(readings: list[Recorded]) -> list[Recorded]:
    """One device's whole recording after another's, as a file may have it."""
    return sorted(readings, key=lambda one: (one.device, one.t))


def in_blocks(readings: list[Recorded]) -> list[Recorded]:
    """A thirtieth of the time of each device in turn."""
    first, last = min(one.t for one in readings), max(one.t for one in readings)
    return sorted(
        readings, key=lambda one: ((one.t - first) * 30 // (last - first + 1), one.device, one.t)
    )


def jumbled(readings: list[Recorded]) -> list[Recorded]:
    """Each reading up to a hundred places from where its time is."""
    rng = random.Random(3)
    placed = sorted((i + rng.randrange(100), one) for i, one in enumerate(by_time(readings)))
    return [one for _, one in placed]


def late_first(readings: list[Recorded]) -> list[Recorded]:
    """By time, but each other device with the second half of its recording first."""
    first, last = min(one.t for one in readings), max(one.t for one in readings)
    odd = set(sorted({one.device for one in readings})[::2])
    return sorted(
        readings, key=lambda one: (one.device in odd and one.t < (first + last) // 2, one.t)
    )


def frames_of(
    readings: list[Recorded], value: str, size: int
) -> Iterator[tuple[str, list[int], list[float]]]:
    """Of each device a frame when it is full, and the rest at the end."""
    open_: dict[str, tuple[list[int], list[float]]] = defaultdict(lambda: ([], []))
    for one in readings:
        if value not in one.values:
            continue
        times, values = open_[one.device]
        times.append(one.t)
        values.append(one.values[value])
        if len(times) == size:
            yield one.device, *open_.pop(one.device)
    for device, (times, values) in open_.items():
        yield device, times, values


def play(feed: Feed, frames: list[tuple[str, list[int], list[float]]], seconds: float) -> None:
    """In so many seconds; each odd partition passes on what it has a while later."""
    devices = sorted({device for device, _, _ in frames})
    at_s = [
        (i * seconds / len(frames) + (UNEVEN_S if devices.index(device) % 2 else 0.0), i)
        for i, (device, _, _) in enumerate(frames)
    ]
    begun_s = time.monotonic()
    for due_s, i in sorted(at_s):
        if (wait_s := begun_s + due_s - time.monotonic()) > 0:
            feed.producer.poll(0)
            time.sleep(wait_s)
        device, times, values = frames[i]
        feed.send(
            times,
            device=device,
            partition=devices.index(device) % 2,
            received_at=time.time_ns() // 1_000_000,
            speed=values,
        )
    feed.flush()


def wrong(feed: Feed, query: str, size_ms: int) -> tuple[int, int]:
    """Windows that are missing, and that are different."""
    expected = windows(feed.sent, size_ms, size_ms, lambda one: (one["device"],), "speed")
    found = truth(results(feed.config, query), "device")
    assert len(expected) > 300
    assert found.keys() <= expected.keys()
    different = [
        place
        for place, row in found.items()
        if row["n"] != len(expected[place])
        or row["total"] != pytest.approx(sum(expected[place]), rel=1e-9)
    ]
    return len(expected) - len(found), len(different)


LONG = [
    *(
        (one, order, 0.0)
        for one in SETS
        for order in (by_time, by_device, in_blocks, jumbled, late_first)
    ),
    *((one, by_time, seconds) for one in SETS for seconds in (4.0, 12.0)),
]
IS_WHOLE: Final = bool(os.environ.get("EDGEWAKE_TRUTH"))
"""Set by `make truth`."""
CASES = LONG if IS_WHOLE else [(SETS[0], in_blocks, 0.0)]
WAIT_S = 60.0
"""Longer than the ten seconds of the configuration: on a busy machine a batch of these sets may
take so long by itself."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("played", "order", "seconds"),
    CASES,
    ids=lambda one: getattr(one, "__name__", getattr(one, "recording", str(one))),
)
def test_a_recorded_set_loses_no_window(
    analysis: Analysis,
    new_feed: NewFeed,
    played: Played,
    order: Callable[[list[Recorded]], list[Recorded]],
    seconds: float,
) -> None:
    if not data_file("iot_env_telemetry").exists():
        pytest.skip("no recorded data at ../shared/data")
    assert run(analysis, new_feed, played, order, seconds, wait_s=WAIT_S) == (0, 0, 0)


@pytest.mark.long
def test_without_the_wait_windows_are_missing(analysis: Analysis, new_feed: NewFeed) -> None:
    """The control, of one set where not all of it is asked for."""
    if not data_file("iot_env_telemetry").exists():
        pytest.skip("no recorded data at ../shared/data")
    for played in SETS if IS_WHOLE else SETS[:1]:
        missing, different, late = run(analysis, new_feed, played, by_time, 4.0, wait_s=0.0)
        assert missing + different > 0
        assert late > 0


def run(
    analysis: Analysis,
    new_feed: NewFeed,
    played: Played,
    order: Callable[[list[Recorded]], list[Recorded]],
    seconds: float,
    *,
    wait_s: float,
) -> tuple[int, int, int]:
    """Windows missing and different, and readings late, while another stream is live and has its
    windows final as ever.
    """
    (recording,) = [one for one in RECORDINGS if one.name == played.recording]
    readings = [one for one in recording.read() if played.value in one.values]
    feed, live = new_feed({"speed": FieldType.NUMBER}), new_feed({"speed": FieldType.NUMBER})
    (query,) = registered(
        sql(
            feed.name, "device, count(*) AS n, sum(speed) AS total",
            f"window(event_time, '{played.size_ms // 60_000} minutes'), device",
            lateness=played.lateness,
        ),
        streams=[feed.stream],
    )  # fmt: skip
    (live_query,) = registered(
        sql(live.name, "count(*) AS n", "window(event_time, '1 second')", lateness="1 second"),
        streams=[live.stream],
    )
    stop = threading.Event()

    def send_live() -> None:
        while not stop.wait(0.1):
            now = time.time_ns() // 1_000_000
            live.send([now], device="live", partition=0, received_at=now, speed=[1.0])
            live.producer.poll(0)

    sending = threading.Thread(target=send_live)
    sending.start()
    of_wait = analysis.with_config(event_time_wait_s=wait_s)
    lane = of_wait.lane([query], [feed.stream])
    live_lane = of_wait.lane([live_query], [live.stream])
    lane.start()
    live_lane.start()

    def await_live(what: str) -> None:
        now = time.time_ns() // 1_000_000
        wait_until(lambda: (watermarks(live.config, live_query.query.name) or [0])[-1] > now, what)

    try:
        await_live("the live lane runs")
        play(feed, list(frames_of(order(readings), played.value, FRAME)), seconds)
        await_live("live windows are final as ever")
        catch_up(lane, feed)
    finally:
        stop.set()
        sending.join()
        lane.stop()
        live_lane.stop()
    late = sum(one["readings"] for one in late_readings(feed.config, query.query.name))
    return *wrong(feed, query.query.name, played.size_ms), late
