"""What the tests of the analysis share: streams filled by hand, lanes run to their end, results
read back, and an oracle.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from edgewake.cloud.analysis.checkpoints.state_rows import kept_rows
from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.jobs.kinds import jobs_of
from edgewake.cloud.analysis.lanes.lane import Lane
from edgewake.cloud.analysis.minutes.minute_job import MinuteJob
from edgewake.cloud.analysis.minutes.minute_lake import Lake
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.analysis.spark.settings import STATE, StateStore, state_settings
from edgewake.cloud.kafka import clients, offsets, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.headers import headers_of
from edgewake.cloud.queries.query import Registered
from edgewake.cloud.queries.query_file import parse
from edgewake.cloud.sequencer.order.arrival import Arrival
from edgewake.cloud.sequencer.order.bounds import Bounds
from edgewake.cloud.sequencer.order.changes import Changes
from edgewake.cloud.sequencer.order.clocks import DeviceClocks, clock_key
from edgewake.cloud.sequencer.order.state_table import StateTable
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.frames import frame, record
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.ops import result
from edgewake.protocol.ops.query import Registration
from tests.services import wait_until

STATE_MIB = 64
"""Memory of the state in the tests' session."""
ALL_LANES = os.environ.get("EDGEWAKE_LANES") == "all"
"""Set by `make test-lanes`: tests that take long for each kind of lane try all kinds."""
BOTH_STORES = pytest.mark.parametrize(
    "state_store", ["memory", pytest.param("rocksdb", marks=pytest.mark.long)]
)
"""For a test whose results must not depend on what keeps the state. All others use the first."""
T0 = 1_790_000_040_000
"""The beginning of a minute."""
_names = itertools.count()


def unique(prefix: str) -> str:
    """A name that no other test uses."""
    return f"{prefix}_{time.time_ns() % 10**9}_{next(_names)}"


def sql(
    stream: str,
    select: str,
    group: str,
    *,
    name: str | None = None,
    lateness: str = "30 seconds",
    reopen: str = "",
    shed: str = "",
    where: str = "",
) -> str:
    """A query file."""
    header = f"-- name: {name or unique('q')}\n-- lateness: {lateness}\n" + (
        f"-- reopen: {reopen}\n" if reopen else ""
    )
    header += f"-- shed: {shed}\n" if shed else ""
    return f"{header}SELECT {select} FROM {stream} {where} GROUP BY {group}"


@dataclass
class Feed:
    """A stream that a test fills: `send` makes one frame."""

    config: KafkaConfig
    name: str
    types: Mapping[str, FieldType]
    producer: Producer = field(init=False)
    frames: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    clocks: DeviceClocks = field(
        default_factory=lambda: DeviceClocks(Bounds(), StateTable(), Changes())
    )
    sent: list[dict[str, Any]] = field(default_factory=list)
    """Every reading, flat, for the oracle."""

    def __post_init__(self) -> None:
        own = (
            topics.LANES,
            topics.PROGRESS,
            topics.LATE,
            topics.SHED,
            *topics.SUMMARIES,
            topics.WINDOWS,
        )
        topic_admin.ensure_topics(self.config, [topics.stream_topic(self.name), *own])
        self.producer = clients.producer(self.config, "test-feed")

    @property
    def stream(self) -> Stream:
        """The catalogue's entry."""
        return Stream(
            name=self.name, fields={name: FieldInfo(type=kind) for name, kind in self.types.items()}
        )

    def send(
        self,
        t: Sequence[int],
        *,
        device: str = "d1",
        sent_at: int | None = None,
        received_at: int | None = None,
        partition: int = -1,
        **fields: Sequence[Any],
    ) -> None:
        """Produce one frame as the sequencer does; received when its last reading was made, unless
        told.
        """
        received_at = max(t) if received_at is None else received_at
        self.frames[device] += 1
        body = frame.encode(
            frame.Frame(
                1,
                self.frames[device],
                1,
                list(t),
                {name: list(column) for name, column in fields.items()},
            )
        )
        value = record.encode(
            device=device,
            stream=self.name,
            mode=record.Mode.ACK,
            sent_at=sent_at,
            received_at=received_at,
            frame_bytes=body,
        )
        value = record.with_clocks(
            value, shift=self._shift(device, sent_at, received_at), kept_at=None
        )
        while True:
            try:
                self.producer.produce(topics.stream_topic(self.name), value, device, partition)
                break
            except BufferError:
                self.producer.poll(0.1)
        for i, at in enumerate(t):
            self.sent.append(
                {"device": device, "t": at}
                | {name: column[i] for name, column in fields.items() if column[i] is not None}
            )

    def _shift(self, device: str, sent_at: int | None, received_at: int) -> int:
        if sent_at is None:
            return 0
        placement = record.Placement(
            record.Discipline.ORDERED, self.name, 1, self.frames[device], self.frames[device]
        )
        arrival = Arrival(self.frames[device], device, placement, 0, received_at, sent_at)
        return self.clocks.shift(clock_key(device), arrival, sent_at, is_known=False)

    def raw(self, value: bytes) -> None:
        """Produce any bytes."""
        self.producer.produce(topics.stream_topic(self.name), value, "d1")

    def flush(self) -> None:
        """Wait until Kafka has all."""
        assert self.producer.flush(30) == 0


def records(session: SparkSession, *values: bytes) -> DataFrame:
    """Records of one partition, as Spark reads them from Kafka."""
    return session.createDataFrame(
        [(0, i, value) for i, value in enumerate(values)],
        "partition int, offset bigint, value binary",
    )


def registered(*files: str, streams: Sequence[Stream], at: int = 1) -> list[Registered]:
    """Query files as registered queries."""
    catalogue = {stream.name: stream for stream in streams}
    return [Registered(parse(text, catalogue), at + i) for i, text in enumerate(files)]


def declare(feed: Feed) -> None:
    """Put the stream into the catalogue, as a bridge does."""
    topic_admin.ensure_topics(feed.config, [topics.STREAMS, topics.QUERIES])
    feed.producer.produce(topics.STREAMS, feed.stream.model_dump_json().encode(), feed.name)
    feed.flush()


def register(feed: Feed, text: str, *, name: str, at_ms: int | None = None) -> None:
    """Register a query, as the operations API does; `at_ms`: not now, but then."""
    registration = Registration(
        name=name, text=text, registered_at=at_ms or time.time_ns() // 1_000_000
    )
    feed.producer.produce(topics.QUERIES, registration.model_dump_json().encode(), name)
    feed.flush()


def remove(feed: Feed, name: str) -> None:
    """Remove a query."""
    feed.producer.produce(topics.QUERIES, None, name)
    feed.flush()


@dataclass
class Analysis:
    """A Spark session and where its lanes keep what they keep."""

    session: SparkSession
    config: AnalysisConfig

    def lane(self, queries: Sequence[Registered], streams: Sequence[Stream]) -> Lane:
        """The one lane of these queries, not started."""
        types = {
            stream.name: {name: info.type for name, info in stream.fields.items()}
            for stream in streams
        }
        (job,) = jobs_of(queries, types).values()
        topic_admin.ensure_topics(self.config.kafka, [each.topic for each in queries])
        return Lane(self.session, self.config, job, SystemClock())

    def with_config(self, **changes: Any) -> Analysis:
        """The same with another configuration."""
        return replace(self, config=self.config.model_copy(update=changes))

    @contextmanager
    def running(self, queries: Sequence[Registered], *feeds: Feed) -> Iterator[Lane]:
        """A lane that has computed all that the feeds sent before."""
        lane = self.lane(queries, [feed.stream for feed in feeds])
        lane.start()
        try:
            for feed in feeds:
                catch_up(lane, feed)
            yield lane
        finally:
            lane.stop()

    def run(self, queries: Sequence[Registered], *feeds: Feed) -> Lane:
        """Compute all that the feeds sent, and stop."""
        with self.running(queries, *feeds) as lane:
            return lane


@contextmanager
def stored(session: SparkSession, store: StateStore) -> Iterator[None]:
    """Queries that start meanwhile keep their state there: Spark's settings alone, see with_config
    for ours.
    """
    ours = {
        name: session.conf.get(name, None)
        for name in state_settings(store, STATE_MIB)
        if name.startswith(STATE)
    }
    for name in ours:
        session.conf.set(name, state_settings(store, STATE_MIB)[name])
    try:
        yield
    finally:
        for name, value in ours.items():
            if value is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, value)


def catch_up(lane: Lane, feed: Feed) -> None:
    """Wait until the lane has committed everything that was sent."""
    feed.flush()
    topic = topics.stream_topic(feed.name)
    ends = topic_ends(feed.config, topic)
    wanted = {partition: end for partition, end in ends.items() if end}

    def done() -> bool:
        assert lane.failure() is None, lane.failure()
        offsets = lane.record.offsets.get(topic, {})
        return all(offsets.get(partition, 0) >= end for partition, end in wanted.items())

    while not done():
        before = lane.record.offsets
        wait_until(
            lambda before=before: done() or lane.record.offsets != before,  # type: ignore[misc]
            f"the lane goes on to {wanted}",
        )


@contextmanager
def summing(analysis: Analysis, *feeds: Feed, **config: Any) -> Iterator[MinuteJob]:
    """The minute summaries of some streams, which go on until they are left."""
    of = analysis.with_config(summary_interval_s=1, **config)
    made = MinuteJob(
        of.session,
        of.config,
        SystemClock(),
        random.Random(1),
        Lake(of.config.data_dir / "lake", SystemClock()).keep,
    )
    made.streams = {feed.name: feed.types for feed in feeds}
    stop = threading.Event()
    thread = threading.Thread(target=made.run, args=(stop,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()


def summed_up(made: MinuteJob, feed: Feed) -> None:
    """Wait until everything that was sent is summed up."""
    feed.flush()
    ends = {
        partition: end
        for partition, end in topic_ends(feed.config, topics.stream_topic(feed.name)).items()
        if end
    }

    def done() -> bool:
        place = made.record.streams.get(feed.name)
        return place is not None and all(
            place.offsets.get(partition, 0) >= end for partition, end in ends.items()
        )

    wait_until(done, f"{feed.name} is summed up to {ends}")


def minutes(feed: Feed) -> dict[str, dict[str, Any]]:
    """Key → what was said last of each minute of a stream."""
    return {
        row.key.decode(): row.value
        for row in read(feed.config, topics.MINUTES)
        if row.value["stream"] == feed.name
    }


VISIBLE_S = 10.0
"""Until a confirmed transaction can be read, on a busy machine."""
_readers: dict[str, list[Consumer]] = defaultdict(list)
"""By Kafka, those that nobody uses now."""


@contextmanager
def _reader(config: KafkaConfig, **settings: Any) -> Iterator[Consumer]:
    """A consumer of committed records, one that was used before where there is one: to Kafka a new
    connection costs more than a read.
    """
    idle = _readers[f"{config.model_dump_json()} {settings}"]
    reader = (
        idle.pop()
        if idle
        else clients.consumer(config, "test-reader", **({"enable.partition.eof": True} | settings))
    )
    yield reader
    reader.unassign()
    idle.append(reader)


def _await_visible(
    config: KafkaConfig, committed: Consumer, places: Sequence[TopicPartition]
) -> None:
    """Kafka confirms a transaction before its records can be read; one whose writer was killed
    stays open, and is not waited for.
    """
    with _reader(config, **{"isolation.level": "read_uncommitted"}) as written:
        ends = [offsets.watermarks(written, place.topic, place.partition)[1] for place in places]
    deadline = time.monotonic() + VISIBLE_S
    while time.monotonic() < deadline:
        if all(
            offsets.watermarks(committed, place.topic, place.partition)[1] >= end
            for place, end in zip(places, ends, strict=True)
        ):
            return
        time.sleep(0.01)


def newest(checkpoint: Path, folder: str) -> Path:
    """The file of the last batch."""
    return max(
        (path for path in (checkpoint / folder).iterdir() if path.name.isdigit()),
        key=lambda path: int(path.name),
    )


def forget(feed: Feed, place: str, one: Registered) -> None:
    """Remove what `ew.windows` keeps of a query."""
    producer = clients.producer(feed.config, "test-forget")
    for key in kept_rows(feed.config, place):
        if key.split("|")[1] == one.label:
            producer.produce(topics.WINDOWS, None, key)
    assert producer.flush(30) == 0


def lose_last_batch(checkpoint: Path) -> None:
    """As a power cut may: Spark then reads its records once more, with those that came since."""
    for folder in ("offsets", "commits"):
        newest(checkpoint, folder).unlink()


def topic_ends(config: KafkaConfig, topic: str) -> dict[int, int]:
    """Partition → offset after the last committed record."""
    with _reader(config) as reader:
        partitions = reader.list_topics(topic, timeout=10).topics[topic].partitions
        return {p: offsets.watermarks(reader, topic, p)[1] for p in partitions}


def is_result(output: emit.Output) -> bool:
    """Is it a query's result, and nothing else that a job puts out?"""
    return topics.parse_query_topic(output.topic) is not None and not result.is_watermark(
        output.key
    )


@dataclass(frozen=True)
class Read:
    """A record as a test reads it back."""

    key: bytes
    value: dict[str, Any]


def read(config: KafkaConfig, topic: str, *, about: str | None = None) -> list[Read]:
    """Every committed record of a topic, partition by partition; of the dead letters those that
    were for the topic `about`.
    """
    found: list[Read] = []
    with _reader(config) as reader:
        partitions = set(reader.list_topics(topic, timeout=10).topics[topic].partitions)
        _await_visible(
            config, reader, [TopicPartition(topic, partition) for partition in partitions]
        )
        reader.assign(
            [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions]
        )
        deadline = time.monotonic() + 30
        while partitions:
            assert time.monotonic() < deadline, f"{topic}: no end of {partitions}"
            message = reader.poll(0.1)
            if message is None:
                continue
            if message.error() is not None:
                partitions.discard(message.partition())
            elif message.value() is not None:
                if about is not None and headers_of(message).get("topic") != about.encode():
                    continue
                found.append(Read(message.key(), json.loads(message.value())))
    return found


def emitted(config: KafkaConfig, query: str) -> list[Read]:
    """All records of a query's last registration."""
    with _reader(config) as reader:
        names = reader.list_topics(timeout=10).topics
    found = [
        parsed
        for name in names
        if (parsed := topics.parse_query_topic(name)) and parsed[0] == query
    ]
    return read(config, topics.query_topic(*max(found))) if found else []


def results(config: KafkaConfig, query: str) -> list[dict[str, Any]]:
    """Every result of a query, each revision."""
    return [row.value for row in emitted(config, query) if not result.is_watermark(row.key)]


def watermarks(config: KafkaConfig, query: str) -> list[int]:
    """What a query announced."""
    return [
        row.value["watermark"] for row in emitted(config, query) if result.is_watermark(row.key)
    ]


def late_readings(config: KafkaConfig, query: str) -> list[dict[str, Any]]:
    """What the stream `late_readings` says of a query, flat."""
    return _said_of(config, topics.LATE, query)


def left_out(config: KafkaConfig, query: str) -> dict[int, int]:
    """Window's start → how many of its readings a query left out, as the stream `shed_readings`
    says.
    """
    return {row["window_begins"]: row["readings"] for row in _said_of(config, topics.SHED, query)}


def _said_of(config: KafkaConfig, topic: str, query: str) -> list[dict[str, Any]]:
    found = [
        record.decode(json.dumps(row.value).encode())
        for row in read(config, topic)
        if row.key == query.encode()
    ]
    return [reading for one in found for reading in record.readings(one)]


def truth(rows: Sequence[Mapping[str, Any]], *keys: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """(window_start, keys …) → the row with the highest revision."""
    latest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        place = (row["window_start"], *(row[key] for key in keys))
        if place not in latest or latest[place]["revision"] <= row["revision"]:
            latest[place] = dict(row)
    return latest


def totals(feed: Feed, query: str) -> dict[tuple[Any, ...], float]:
    """(window_start, device) → `total` as last told."""
    return {
        place: row["total"] for place, row in truth(results(feed.config, query), "device").items()
    }


def windows(
    readings: Sequence[Mapping[str, Any]],
    size_ms: int,
    slide_ms: int,
    key: Callable[[Mapping[str, Any]], tuple[Any, ...]],
    value: str,
) -> dict[tuple[Any, ...], list[float]]:
    """The oracle: (window_start, key …) → values, by trying every window, without our
    arithmetic.
    """
    found: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for reading in readings:
        start = 0 - (0 - reading["t"] // slide_ms) * slide_ms
        while start > reading["t"] - size_ms:
            if start <= reading["t"] < start + size_ms and value in reading:
                found[(start, *key(reading))].append(reading[value])
            start -= slide_ms
    return dict(found)


def data_file(*parts: str) -> Path:
    """A recorded set beside the repository."""
    return Path(__file__).resolve().parents[3].joinpath("shared", "data", *parts)
