"""Input of the analysis' benchmark, for us and for the rivals: records of a stream as the sequencer
writes them, and what is right.

A frame lies within one minute, so what is right is summed up frame by frame, without our code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import orjson

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.frames import record

FIELDS: Final = {"speed": 7, "lat": 13, "lon": 29, "bat": 3}
"""With the steps in which their values go."""
PATTERNS: Final = 50
"""Different frames; each is many devices' and minutes'."""
MINUTE_MS: Final = 60_000
END: Final = "end"
"""Device of the last frame of each partition, ten minutes after all others: it closes their windows
where only later readings do."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """`frames` frames of `readings` readings, `step_ms` apart, by so many devices in turn."""

    devices: int
    readings: int
    step_ms: int
    frames: int

    @property
    def count(self) -> int:
        """Of readings, without those of END."""
        return self.frames * self.readings

    def columns(self, pattern: int) -> dict[str, list[float]]:
        """Values of a frame."""
        return {
            name: [((pattern * 31 + i * 7) * step) % 997 / 10 for i in range(self.readings)]
            for name, step in FIELDS.items()
        }


FEW_KEYS: Final = Traffic(devices=50, readings=100, step_ms=100, frames=36_000)
MANY_KEYS: Final = Traffic(devices=100_000, readings=4, step_ms=15_000, frames=400_000)


class Window(NamedTuple):
    """What is right for a device and minute."""

    n: int
    total: float
    high: float
    levels: frozenset[float]


def windows(traffic: Traffic, begin_ms: int) -> dict[tuple[str, int], Window]:
    """(device, begin of the minute) → what is right."""
    columns = [traffic.columns(pattern) for pattern in range(PATTERNS)]
    parts = [
        Window(traffic.readings, sum(one["speed"]), max(one["speed"]), frozenset(one["bat"]))
        for one in columns
    ]
    found: dict[tuple[str, int], Window] = {}
    for device, t, pattern in _frames(traffic, begin_ms):
        place, part = (device, t - t % MINUTE_MS), parts[pattern]
        before = found.get(place)
        found[place] = (
            part
            if before is None
            else Window(
                before.n + part.n,
                before.total + part.total,
                max(before.high, part.high),
                before.levels | part.levels,
            )
        )
    return found


def begin_of(traffic: Traffic) -> int:
    """So long ago that all of it is past, at the beginning of a minute."""
    rounds = -(-traffic.frames // traffic.devices)
    begin_ms = SystemClock().now_ms() - rounds * traffic.readings * traffic.step_ms - 30 * MINUTE_MS
    return begin_ms - begin_ms % MINUTE_MS


def fill(config: KafkaConfig, stream: str, traffic: Traffic, begin_ms: int) -> None:
    """Write all frames, then END's."""
    topic = topics.stream_topic(stream)
    topic_admin.ensure_topics(config, [topic])
    producer = clients.producer(
        config,
        "bench",
        **{"queue.buffering.max.kbytes": 262_144, "queue.buffering.max.messages": 500_000},
    )
    fields = [orjson.dumps(traffic.columns(pattern)) for pattern in range(PATTERNS)]
    last_t = begin_ms

    def write(device: str, number: int, t: list[int], pattern: int, partition: int = -1) -> None:
        body = b'{"epoch":1,"frame":%d,"seq":%d,"t":%s,"fields":%s}' % (
            number,
            number * traffic.readings,
            orjson.dumps(t),
            fields[pattern],
        )
        value = record.encode(
            device=device,
            stream=stream,
            mode=record.Mode.ACK,
            sent_at=None,
            received_at=t[-1] + 50,
            frame_bytes=body,
        )
        while True:
            try:
                producer.produce(topic, value, device, partition)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)

    for i, (device, first, pattern) in enumerate(_frames(traffic, begin_ms)):
        times = [first + j * traffic.step_ms for j in range(traffic.readings)]
        last_t = times[-1]
        write(device, i // traffic.devices + 1, times, pattern)
    for partition in range(config.partitions):
        write(END, 1, [last_t + 10 * MINUTE_MS] * traffic.readings, 0, partition)
    assert producer.flush(120) == 0


def _frames(traffic: Traffic, begin_ms: int) -> Iterator[tuple[str, int, int]]:
    """Device, time of the first reading, pattern."""
    long_ms = traffic.readings * traffic.step_ms
    assert MINUTE_MS % long_ms == 0, "a frame lies within a minute"
    for i in range(traffic.frames):
        yield (
            f"d{i % traffic.devices}",
            begin_ms + i // traffic.devices * long_ms,
            (i * 17) % PATTERNS,
        )
