"""How soon the analysis tells results again after kill -9, with a long history behind it, and
whether all of them are right.

Method: Kafka has ten million readings of 50 devices in frames of 100. The analysis, a process as
`edgewake analysis` starts it, computes count, mean and maximum by device and minute, and the minute
summaries. A device goes on sending a reading five times a second. When the query has caught up, and
Spark's classes are kept, as they are after the first minutes, the process and its JVM are killed
and started again. Measured are the seconds from the start of the process until it is ready, until a
row has a reading that was sent after the kill, and until it has caught up; beside them stands what
the history took at first, because a restart that computed it again would take as long. At the end
the last row of every window, read from Kafka, is compared with sums made without our code, those of
the live device by count.
`python -m tests.bench.bench_restart [--runs 3] [--readings 10000000] [--json FILE]`
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import orjson
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.table_reader import TableReader
from edgewake.deploy.programs import jars
from edgewake.protocol import topics
from edgewake.protocol.frames import record
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.ops.query import Progress, Registration
from tests.bench import analysis_results
from tests.bench.analysis_traffic import FEW_KEYS, FIELDS, MINUTE_MS, begin_of, fill, windows
from tests.bench.figures import Found, run
from tests.services import Process, part, run_kafka, wait_until

STREAM: Final = "history"
QUERY: Final = "by_minute"
TEXT: Final = f"""-- name: {QUERY}
SELECT device, count(speed) AS n, avg(speed) AS mean, max(speed) AS high
FROM {STREAM}
GROUP BY window(event_time, '1 minute'), device
"""
LIVE: Final = "live"
LIVE_EVERY_S: Final = 0.2
MEANWHILE: Final = 50
"""Records of the live device: ten seconds of a busy machine, one of two thousand of the
history's."""
READY: Final = '"event":"part.ready"'
KEPT: Final = '"event":"classes.kept"'
COMPUTED_S: Final = 1_800.0
"""For the history on a busy machine."""
FLOOR_S: Final = 15.0


class Live(threading.Thread):
    """A device that goes on sending; what it sent is counted by minute."""

    def __init__(self, config: KafkaConfig) -> None:
        super().__init__(daemon=True)
        self.sent: Counter[int] = Counter()
        """Begin of the minute → readings."""
        self._producer = clients.producer(config, "bench-live")
        self._over = threading.Event()

    def run(self) -> None:
        number = 0
        while not self._over.wait(LIVE_EVERY_S):
            number += 1
            t = time.time_ns() // 1_000_000
            fields = {name: [1.0] for name in FIELDS}
            body = orjson.dumps(
                {"epoch": 1, "frame": number, "seq": number, "t": [t], "fields": fields}
            )
            value = record.encode(
                device=LIVE,
                stream=STREAM,
                mode=record.Mode.ACK,
                sent_at=None,
                received_at=t,
                frame_bytes=body,
            )
            self._producer.produce(topics.stream_topic(STREAM), value, LIVE)
            assert self._producer.flush(60) == 0
            self.sent[t - t % MINUTE_MS] += 1

    def close(self) -> None:
        """Send no more."""
        self._over.set()
        self.join()


class Told:
    """What the analysis says of the query: its rows of the live device, and how far it is."""

    def __init__(self, config: KafkaConfig, topic: str) -> None:
        self.live: dict[int, int] = {}
        """Begin of the minute → readings of the latest row."""
        self.progress: Progress | None = None
        self._rows = clients.consumer(config, "bench-told")
        self._rows.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        self._table = TableReader(config, "bench-progress", {topics.PROGRESS: self._on_progress})
        self._table.read_all()

    def look(self) -> None:
        """Take in what is new."""
        self._table.poll(0.0)
        for message in self._rows.consume(10_000, 0.02):
            assert message.error() is None, message.error()
            row: dict[str, Any] = orjson.loads(message.value())
            if row.get("device") == LIVE:
                self.live[row["window_start"]] = row["n"]

    @property
    def has_caught_up(self) -> bool:
        """Was nothing left when it last spoke, but for what came during its batch?"""
        return (
            self.progress is not None
            and self.progress.lag is not None
            and self.progress.lag <= MEANWHILE
        )

    def until(self, condition: Callable[[], bool], what: str) -> float:
        """When it came true, monotonic seconds."""
        wait_until(lambda: (self.look(), condition())[1], what, timeout_s=COMPUTED_S)
        return time.monotonic()

    def close(self) -> None:
        """Leave."""
        self._rows.close()
        self._table.close()

    def _on_progress(self, name: str, value: bytes | None) -> None:
        if name == QUERY and value is not None:
            self.progress = Progress.model_validate_json(value)


def measure(folder: Path, runs: int, readings: int) -> Found:
    """Compute the history once; kill and start as often as asked."""
    found: Found = defaultdict(list)
    traffic = replace(FEW_KEYS, frames=readings // FEW_KEYS.readings)
    with run_kafka(folder / "kafka") as kafka:
        config = KafkaConfig(bootstrap=kafka.bootstrap)
        topic_admin.ensure_topics(
            config, [topics.STREAMS, topics.QUERIES, topics.PROGRESS, topics.stream_topic(STREAM)]
        )
        begin_ms = begin_of(traffic)
        fill(config, STREAM, traffic, begin_ms)
        topic = _register(config)
        analysis = folder / "analysis.toml"
        analysis.write_text(
            f'data_dir = "{folder}/analysis"\njars_dir = '
            f'"{jars.ensure("spark")}"\n[kafka]\nbootstrap = "{config.bootstrap}"\n'
        )
        live = Live(config)
        process = part("analysis", analysis, folder / "analysis.log")
        with process, closing(Told(config, topic)) as told, closing(live):
            live.start()
            began = time.monotonic()
            computed = told.until(lambda: told.has_caught_up, "the history is computed")
            found["restart: the history, from the first start on", "s", None].append(
                computed - began
            )
            process.wait_for(KEPT, timeout_s=COMPUTED_S)
            for _ in range(runs):
                _restart(process, told, live, found)
            live.close()
            told.until(
                lambda: told.live == live.sent, "every reading of the live device is in a row"
            )
        rows = analysis_results.read(config, topic)
    live_rows = {start: row["n"] for (device, start), row in rows.items() if device == LIVE}
    assert live_rows == live.sent, "the live device's rows are right"
    analysis_results.check(
        {place: row for place, row in rows.items() if place[0] != LIVE},
        windows(traffic, begin_ms),
        "edgewake",
    )
    return found


def _register(config: KafkaConfig) -> str:
    """Declare the stream, register the query; the topic of its results."""
    stream = Stream(name=STREAM, fields={name: FieldInfo(type=FieldType.NUMBER) for name in FIELDS})
    query = Registration(name=QUERY, text=TEXT, registered_at=time.time_ns() // 1_000_000)
    topic_admin.ensure_topics(config, [query.topic])
    producer = clients.producer(config, "bench-register")
    producer.produce(topics.STREAMS, stream.model_dump_json().encode(), STREAM)
    producer.produce(topics.QUERIES, query.model_dump_json().encode(), QUERY)
    assert producer.flush(30) == 0
    return query.topic


def _restart(process: Process, told: Told, live: Live, found: Found) -> None:
    told.until(lambda: told.has_caught_up, "it has caught up")
    process.kill()
    told.look()
    at_kill = told.progress
    before = max(sum(told.live.values()), sum(live.sent.values()))
    began = time.monotonic()
    process.start()
    process.wait_for(READY, timeout_s=COMPUTED_S)
    ready = time.monotonic()
    first = told.until(
        lambda: sum(told.live.values()) > before, "a row with a reading sent after the kill"
    )
    left = told.until(
        lambda: told.has_caught_up and told.progress is not at_kill, "it has caught up"
    )
    for name, floor, at in (
        ("ready", None, ready),
        ("first result with a new reading", FLOOR_S, first),
        ("it has caught up", None, left),
    ):
        found[f"restart after kill -9: until {name}", "s", floor].append(at - began)


if __name__ == "__main__":
    run(measure, __doc__, sizes={"readings": 10_000_000})
