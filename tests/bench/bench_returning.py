"""A device that was silent for a week sends it all at once, among 99 that are live.

Method: 99 plain MQTT devices send a reading a second each. The hundredth is a real agent: its
source gets a week of readings at once, one each ten seconds (60,480), in a file. Three queries run:
windows of an hour per device and over all devices, which stay open for eight days, and windows of
five seconds per device, which do not. A client reads their results over SSE. Measured are the
seconds from the moment when the file is whole until every window of the week is right, by device
and over all, and how long after its end a window of five seconds of the live devices is complete,
before and meanwhile; and the seconds until the minute summaries, for which all of the week is late,
have it. Completeness: the run ends only when all 2 x 168 windows have the exact number and sum, and
then nothing more may be late; the summaries must have every reading once. Everything shares the
machine, broker, Kafka, Spark and devices. `python -m tests.bench.bench_returning [--runs 1] [--json
FILE]`
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

import orjson
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.summaries.summary import Record
from edgewake.protocol import topics
from edgewake.simulators.clients import Event, Follower
from tests.bench.bench_latency import (
    FIRST_S,
    SQL,
    WARM_UP_S,
    WINDOW_MS,
    Devices,
    Load,
    Stopwatch,
    next_window,
)
from tests.bench.figures import Found, percentile, run
from tests.story.system import System, until

STREAM: Final = "back_again"
LIVE: Final = Load(STREAM, 99, 1, 1)
HOUR_MS: Final = 3_600_000
WEEK_MS: Final = 7 * 24 * HOUR_MS
EVERY_MS: Final = 10_000
BEFORE_S: Final = 20.0
WEEK_S: Final = 600.0
"""After which a run that is not right fails."""
GOAL_S: Final = 60.0
LIVE_GOAL_MS: Final = 2_000.0
WEEK: Final = """-- name: {name}
-- description: Hours that a device which comes back may still change
-- reopen: 8 days
SELECT {key}count(*) AS readings, sum(speed) AS total
FROM {stream}
GROUP BY window(event_time, '1 hour'){group}
"""
OWN: Final = "hours_of_devices"
ALL: Final = "hours_of_all"


class Week:
    """The readings of a device's week, and which windows were told right."""

    def __init__(self, device: str, end_ms: int) -> None:
        """The week ends with the last full hour before `end_ms`."""
        self.device = device
        self._start_ms = end_ms - end_ms % HOUR_MS - WEEK_MS
        self._wanted: dict[int, tuple[int, float]] = {}
        self._right: dict[str, set[int]] = {OWN: set(), ALL: set()}
        self.late = 0
        for t in range(self._start_ms, self._start_ms + WEEK_MS, EVERY_MS):
            count, total = self._wanted.get(t - t % HOUR_MS, (0, 0.0))
            self._wanted[t - t % HOUR_MS] = count + 1, total + self._speed(t)

    @staticmethod
    def _speed(t: int) -> float:
        return float(t // EVERY_MS % 97)

    def lines(self) -> bytes:
        """For the file that the agent follows."""
        times = range(self._start_ms, self._start_ms + WEEK_MS, EVERY_MS)
        return b"".join(
            orjson.dumps({"t": t, "at": 0.0, "speed": self._speed(t)}) + b"\n" for t in times
        )

    def on_event(self, _client: str, event: Event) -> None:
        if event.name != "message":
            return
        row = orjson.loads(event.data)
        query = row.get("query")
        if (
            query in self._right
            and row["window_start"] in self._wanted
            and row.get("device", self.device) == self.device
        ):
            is_right = (row.get("readings"), row.get("total")) == self._wanted[row["window_start"]]
            (self._right[query].add if is_right else self._right[query].discard)(
                row["window_start"]
            )
        elif row.get("late_query") in self._right:
            self.late += row["readings"]

    def is_right(self) -> bool:
        """Was every window of the week told as it is?"""
        return all(len(found) == len(self._wanted) for found in self._right.values())

    @property
    def span_ms(self) -> tuple[int, int]:
        """Begin and end."""
        return self._start_ms, self._start_ms + WEEK_MS


class Summed:
    """Follows the minute summaries of a field in some time."""

    def __init__(self, config: KafkaConfig, field: str, span_ms: tuple[int, int]) -> None:
        self._consumer = clients.consumer(config, "bench-minutes")
        self._consumer.assign([TopicPartition(topics.MINUTES, 0, OFFSET_BEGINNING)])
        self._field, self._span_ms = field, span_ms
        self._found: dict[bytes, int] = {}

    def readings(self) -> int:
        """In the summaries so far, of minutes and their late parts."""
        while messages := self._consumer.consume(1_000, 0.05):
            for message in messages:
                record = Record.decode(message.value())
                if (
                    record.series.field == self._field
                    and self._span_ms[0] <= record.start_ms < self._span_ms[1]
                ):
                    self._found[message.key()] = record.summary.readings
        return sum(self._found.values())

    def close(self) -> None:
        self._consumer.close()


def measure(folder: Path, runs: int) -> Found:
    """Start the system for each run: a week is sent once."""
    found: Found = defaultdict(list)
    for i in range(runs):
        (folder / f"run-{i}").mkdir(parents=True)
        asyncio.run(_measure(folder / f"run-{i}", found))
    return found


async def _measure(folder: Path, found: Found) -> None:
    async with System(folder, agents=("returning",), stream=STREAM, bridges=1, servers=1) as system:
        system.register(LIVE.query, SQL.format(stream=STREAM))
        system.register(OWN, WEEK.format(name=OWN, stream=STREAM, key="device, ", group=", device"))
        system.register(ALL, WEEK.format(name=ALL, stream=STREAM, key="", group=""))
        await system.start("access-1", "analysis", "sequencer", "bridge-1", "returning")
        devices = Devices(system.mqtt_port, "live", LIVE)
        watch, week = Stopwatch(LIVE.query), Week("returning", int(time.time() * 1000) - HOUR_MS)
        live = Follower("live", system.servers, [LIVE.query], watch.on_event, start="latest")
        sending = asyncio.create_task(devices.run())
        live.wake()
        try:
            await until(lambda: watch.rows, "first rows", timeout_s=FIRST_S)
            await asyncio.sleep(WARM_UP_S)
            hours = Follower(
                "hours", system.servers, [OWN, ALL, "late_readings"], week.on_event, start="latest"
            )
            hours.wake()
            first_ms = next_window()
            await asyncio.sleep(BEFORE_S)
            await _live(devices, watch, first_ms, "before", found)
            first_ms = next_window()
            system.input_file("returning").write_bytes(week.lines())
            start_s = time.monotonic()
            await until(week.is_right, "every window of the week is right", timeout_s=WEEK_S)
            took_s = time.monotonic() - start_s
            await asyncio.sleep(BEFORE_S)
            await _live(devices, watch, first_ms, "meanwhile and 20 s after", found)
            await hours.sleep()
            await _summed(system, week)
            found[
                "a week at once by 1 of 100 devices: until it is in the minute summaries", "s", None
            ].append(time.monotonic() - start_s)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await live.sleep()
        assert week.is_right()
        assert not week.late, f"{week.late} readings were late for windows that stay open"
        found[
            "a week at once by 1 of 100 devices: until all its windows are right", "s", GOAL_S
        ].append(took_s)


async def _summed(system: System, week: Week) -> None:
    """Wait until the summaries have all of the week, and no more."""
    summed = Summed(system.kafka_config, "speed", week.span_ms)
    wanted = WEEK_MS // EVERY_MS
    try:
        await until(lambda: summed.readings() >= wanted, "the week is summed up", timeout_s=WEEK_S)
        assert summed.readings() == wanted
    finally:
        summed.close()


async def _live(devices: Devices, watch: Stopwatch, first_ms: int, when: str, found: Found) -> None:
    """Of all windows that begin from then on and have ended."""
    values = await watch.windows_s(devices, first_ms, next_window() - WINDOW_MS)
    for percent in (50, 99):
        goal = LIVE_GOAL_MS if percent == 99 else None
        found[
            f"live devices: complete window after its end, {when}, p{percent}", "ms", goal
        ].append(percentile(values, percent) * 1000)


if __name__ == "__main__":
    run(measure, __doc__)
