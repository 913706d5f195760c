"""What the page tests run beside Chromium: a Kafka of their own, an access server that can be killed, and a writer of known events.

The page's streams have fixed names and it looks back two minutes, so its tests share no Kafka with others; each uses devices of its own.
"""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import record, topics
from edgewake.protocol.field_type import types_of
from edgewake.protocol.frame import Frame, Gap
from edgewake.protocol.frame import encode as encode_frame
from edgewake.protocol.query import Registration
from edgewake.protocol.result import KIND_HEADER, KIND_RESULT, KIND_WATERMARK, WATERMARK_KEY, result_key, watermark_value
from edgewake.protocol.stream import FieldInfo, Stream
from tests.services import Process, free_ports, part

WRITE_EVERY_S = 0.1


class Writer:
    """Writes readings as the sequencer and results as the analysis do: in transactions, numbered from 1 per stream and device."""

    def __init__(self, config: KafkaConfig) -> None:
        self.config = config
        self.sent: dict[tuple[str, str], int] = {}
        self._revisions = itertools.count(1)
        self._declared: set[str] = set()
        self._queries: dict[str, Registration] = {}
        self._lock = threading.Lock()
        self._producer = clients.transactional_producer(config, f"page-tests-{secrets.token_hex(4)}")
        self._producer.init_transactions(30)
        topic_admin.ensure_topics(config, topics.COMPACTED)

    def reading(self, stream: str, device: str, *, numbered: bool = True, **fields: Any) -> int:
        """One reading; its seq."""
        with self._lock:
            now = time.time_ns() // 1_000_000
            seq = self.sent[stream, device] = self.sent.get((stream, device), 0) + 1
            columns = {name: [value] for name, value in fields.items()}
            numbers = (1, seq, seq) if numbered else (None, None, None)
            body = encode_frame(Frame(*numbers, [now], columns))
            value = record.encode(device=device, stream=stream, mode=record.Mode.ACK, sent_at=now, received_at=now, frame_bytes=body)
            self._declare(stream, columns)
            self._commit(topics.stream_topic(stream), device.encode(), value, {})
            return seq

    def result(self, query: str, window_start: int, window_end: int, **columns: Any) -> None:
        """One row of a query that is registered."""
        with self._lock:
            row = {"query": query, "window_start": window_start, "window_end": window_end, **columns, "revision": next(self._revisions)}
            group = {name: value for name, value in columns.items() if isinstance(value, str)}
            key = orjson.dumps(group, option=orjson.OPT_SORT_KEYS).decode()
            self._commit(
                self._queries[query].topic,
                result_key(window_start, window_end, key),
                orjson.dumps(row),
                {KIND_HEADER: KIND_RESULT},
            )

    def fleet(self, name: str, vehicles: int, turn: int) -> None:
        """A reading of each of many vehicles, in one transaction."""
        with self._lock:
            now = time.time_ns() // 1_000_000
            fields = {"lat": 53.2, "lon": -6.1 + turn / 1000, "speed_kmh": 30.0, "heading_deg": 90.0}
            self._declare("vehicle_position", {field: [value] for field, value in fields.items()})
            self._producer.begin_transaction()
            for i in range(vehicles):
                columns = {**{field: [value] for field, value in fields.items()}, "lat": [53.0 + i / vehicles]}
                body = encode_frame(Frame(1, turn + 1, turn + 1, [now], columns))
                device = f"{name}-{i}"
                value = record.encode(
                    device=device, stream="vehicle_position", mode=record.Mode.ACK, sent_at=now, received_at=now, frame_bytes=body
                )
                self._producer.produce(topics.stream_topic("vehicle_position"), key=device, value=value)
            self._producer.commit_transaction(30)

    def gap(self, stream: str, device: str, *, count: int, reason: str) -> None:
        """A gap frame of a device, after what it sent."""
        with self._lock:
            now = time.time_ns() // 1_000_000
            seq = self.sent.get((stream, device), 0) + 1
            self.sent[stream, device] = seq + count - 1
            body = encode_frame(Frame(1, seq, seq, [], {}, gap=Gap(reason, count)))
            value = record.encode(device=device, stream=stream, mode=record.Mode.ACK, sent_at=now, received_at=now, frame_bytes=body)
            self._commit(topics.stream_topic(stream), device.encode(), value, {})

    def watermark(self, query: str, until_ms: int) -> None:
        """Windows that end until then are final."""
        with self._lock:
            value = watermark_value(query, until_ms, next(self._revisions))
            self._commit(self._queries[query].topic, WATERMARK_KEY, value, {KIND_HEADER: KIND_WATERMARK})

    def remove(self, query: str) -> None:
        """Remove a query's registration, as the operations API does."""
        with self._lock:
            self._commit(topics.QUERIES, query.encode(), None, {})

    def register(self, query: str) -> None:
        """Make a query known and its topic."""
        registration = Registration(name=query, text=f"-- name: {query}", registered_at=time.time_ns() // 1_000_000)
        topic_admin.ensure_topics(self.config, [registration.topic])
        with self._lock:
            self._queries[query] = registration
            self._commit(topics.QUERIES, query.encode(), registration.model_dump_json().encode(), {})

    def _declare(self, stream: str, columns: Mapping[str, list[Any]]) -> None:
        if stream not in self._declared:
            self._declared.add(stream)
            topic_admin.ensure_topics(self.config, [topics.stream_topic(stream)])
            fields = {name: FieldInfo(type=kind) for name, kind in types_of(columns).items()}
            self._commit(topics.STREAMS, stream.encode(), Stream(name=stream, fields=fields).model_dump_json().encode(), {})

    def _commit(self, topic: str, key: bytes, value: bytes | None, headers: Mapping[str, bytes]) -> None:
        self._producer.begin_transaction()
        self._producer.produce(topic, key=key, value=value, headers=list(headers.items()))
        self._producer.commit_transaction(30)


class Town:
    """Vehicles, a machine and parts that keep sending until `stop`, in a thread."""

    def __init__(self, writer: Writer, name: str, *, vehicles: int = 3) -> None:
        self.writer = writer
        self.name = name
        self.vehicles = [f"{name}-car-{i}" for i in range(vehicles)]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"town-{name}")

    def __enter__(self) -> Town:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Send no more; what was sent is in Kafka."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        for turn in itertools.count():
            self._tell(turn)
            if self._stop.wait(WRITE_EVERY_S):
                return

    def _tell(self, turn: int) -> None:
        for i, device in enumerate(self.vehicles):
            self.writer.reading(
                "vehicle_position", device, lat=53.2 + i / 500, lon=-6.12 + turn / 10_000, speed_kmh=30.0 + i, heading_deg=90.0,
                battery_percent=80.0, odometer_km=float(turn), street="Market Street",
            )  # fmt: skip
        self.writer.reading("host_metrics", f"{self.name}-host", cpu_percent=25.0 + turn % 10, memory_percent=50.0)
        if turn % 10 == 0:
            self.writer.reading(
                "part_status", "supervisor", numbered=False, part=f"{self.name}-part", state="ready", pid=4711, restarts=0,
                rss_mib=42.0, cpu_percent=1.0, uptime_s=float(turn),
            )  # fmt: skip


class AccessServer:
    """The real access server on a fixed port, so that a page finds it again."""

    def __init__(self, config: KafkaConfig, directory: Path, *, heartbeat_s: float = 15) -> None:
        [self.port] = free_ports(1)
        keys = directory / "cursor.keys"
        keys.write_text(f"1 {secrets.token_hex(32)}\n")
        keys.chmod(0o600)
        toml = directory / "access.toml"
        toml.write_text(
            f'name = "page-access"\nhost = "127.0.0.1"\nport = {self.port}\ncursor_key_file = "{keys}"\nheartbeat_s = {heartbeat_s}\n\n'
            f'[kafka]\nbootstrap = "{config.bootstrap}"\n'
        )
        self._directory = directory
        self._toml = toml
        self._starts = 0
        self.process: Process

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> AccessServer:
        """Start it (again) and wait until it serves."""
        self._starts += 1
        self.process = part("access", self._toml, self._directory / f"access-{self._starts}.log").start()
        self.process.wait_for('"event":"part.ready"')
        return self
