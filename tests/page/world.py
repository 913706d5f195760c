"""What the page tests run beside Chromium: a Kafka of their own, an access server that can be
killed, and a writer of known events.

The page's streams have fixed names and it looks back two minutes, so its tests share no Kafka with
others; each uses devices of its own.
"""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.frames import record
from edgewake.protocol.frames.field_type import FieldType, types_of
from edgewake.protocol.frames.frame import Frame, Gap
from edgewake.protocol.frames.frame import encode as encode_frame
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.ops.query import Progress, QueryState, Registration
from edgewake.protocol.ops.result import WATERMARK_KEY, result_key, watermark_value
from tests.services import Process, free_ports, part

WRITE_EVERY_S = 0.1
OPS = "http://127.0.0.1:9/"
"""Where the operations pages are said to be."""


@dataclass(frozen=True)
class Reading:
    """What a device measured once."""

    stream: str
    device: str
    fields: Mapping[str, Any]
    numbered: bool = True


@dataclass(frozen=True)
class Record:
    """One of Kafka's."""

    topic: str
    key: bytes
    value: bytes | None
    at: int = 0
    """ms since 1970 UTC; 0: now."""


class Writer:
    """Writes readings as the sequencer and results as the analysis do: in transactions, numbered
    from 1 per stream and device.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self.config = config
        self.sent: dict[tuple[str, str], int] = {}
        self._revisions = itertools.count(1)
        self._declared: set[str] = set()
        self._queries: dict[str, Registration] = {}
        self._lock = threading.Lock()
        self._producer = clients.transactional_producer(
            config, f"page-tests-{secrets.token_hex(4)}"
        )
        clients.fence(self._producer, 30)
        topic_admin.ensure_topics(config, topics.COMPACTED)

    def reading(
        self, stream: str, device: str, *, numbered: bool = True, ago_s: float = 0, **fields: Any
    ) -> None:
        """One reading."""
        self.readings([Reading(stream, device, fields, numbered=numbered)], ago_s=ago_s)

    def readings(self, readings: Sequence[Reading], *, ago_s: float = 0) -> None:
        """Each the next one of its stream and device, in one transaction, as if it came then."""
        with self._lock:
            now = time.time_ns() // 1_000_000 - round(ago_s * 1000)
            records = []
            for one in readings:
                columns = {name: [value] for name, value in one.fields.items()}
                self._declare(one.stream, columns)
                seq = self.sent[one.stream, one.device] = (
                    self.sent.get((one.stream, one.device), 0) + 1
                )
                numbers = (1, seq, seq) if one.numbered else (None, None, None)
                frame = Frame(*numbers, [now], columns)
                records.append(_record(one.stream, one.device, frame, now))
            self._commit(*records)

    def result(self, query: str, window_start: int, window_end: int, **columns: Any) -> None:
        """One row of a query that is registered."""
        with self._lock:
            row = {
                "query": query,
                "window_start": window_start,
                "window_end": window_end,
                **columns,
                "revision": next(self._revisions),
            }
            group = {name: value for name, value in columns.items() if isinstance(value, str)}
            key = orjson.dumps(group, option=orjson.OPT_SORT_KEYS).decode()
            place = result_key(window_start, window_end, key)
            self._commit(Record(self._queries[query].topic, place, orjson.dumps(row)))

    def fleet(self, name: str, vehicles: int) -> None:
        """A reading of each of many vehicles."""
        fields = {"lon": -6.1, "speed_kmh": 30.0, "heading_deg": 90.0}
        self.readings(
            [
                Reading("vehicle_position", f"{name}-{i}", {**fields, "lat": 53.0 + i / vehicles})
                for i in range(vehicles)
            ]
        )

    def gap(self, stream: str, device: str, *, count: int, reason: str) -> None:
        """A gap frame of a device, after what it sent."""
        with self._lock:
            seq = self.sent.get((stream, device), 0) + 1
            self.sent[stream, device] = seq + count - 1
            self._commit(
                _record(
                    stream,
                    device,
                    Frame(1, seq, seq, [], {}, gap=Gap(reason, count)),
                    time.time_ns() // 1_000_000,
                )
            )

    def watermark(self, query: str, until_ms: int) -> None:
        """Windows that end until then are final."""
        with self._lock:
            value = watermark_value(query, until_ms, next(self._revisions))
            self._commit(Record(self._queries[query].topic, WATERMARK_KEY, value))

    def runs(self, query: str, stream: str, **more: Any) -> None:
        """A query runs: its line on the topic of progress."""
        with self._lock:
            now = time.time_ns() // 1_000_000
            told = Progress(
                query=query, stream=stream, state=QueryState.RUNNING, updated_at=now, **more
            )
            self._commit(Record(topics.PROGRESS, query.encode(), told.model_dump_json().encode()))

    def registered(self) -> list[str]:
        """The names of all queries that were registered here."""
        return list(self._queries)

    def remove(self, *queries: str) -> None:
        """Remove queries' registrations, as the operations API does."""
        with self._lock:
            self._commit(*(Record(topics.QUERIES, query.encode(), None) for query in queries))

    def register(self, *queries: str) -> None:
        """Make queries known and their topics."""
        now = time.time_ns() // 1_000_000
        made = {
            name: Registration(name=name, text=f"-- name: {name}", registered_at=now)
            for name in queries
        }
        topic_admin.ensure_topics(self.config, [one.topic for one in made.values()])
        with self._lock:
            self._queries |= made
            self._commit(
                *(
                    Record(topics.QUERIES, name.encode(), one.model_dump_json().encode())
                    for name, one in made.items()
                )
            )

    def units(self, stream: str, **units: str) -> None:
        """The units of fields, as an operator decides them; all are numbers."""
        number = FieldType.NUMBER
        fields = {name: FieldInfo(type=number, unit=one, revision=1) for name, one in units.items()}
        row = Stream(name=stream, fields=fields).model_dump_json().encode()
        with self._lock:
            self._commit(Record(topics.STREAMS, stream.encode(), row))

    def _declare(self, stream: str, columns: Mapping[str, list[Any]]) -> None:
        if stream not in self._declared:
            self._declared.add(stream)
            topic_admin.ensure_topics(self.config, [topics.stream_topic(stream)])
            fields = {name: FieldInfo(type=kind) for name, kind in types_of(columns).items()}
            self._commit(
                Record(
                    topics.STREAMS,
                    stream.encode(),
                    Stream(name=stream, fields=fields).model_dump_json().encode(),
                )
            )

    def _commit(self, *records: Record) -> None:
        self._producer.begin_transaction()
        for one in records:
            self._producer.produce(one.topic, key=one.key, value=one.value, timestamp=one.at)
        self._producer.commit_transaction(30)


def _record(stream: str, device: str, frame: Frame, now: int) -> Record:
    value = record.encode(
        device=device,
        stream=stream,
        mode=record.Mode.ACK,
        sent_at=now,
        received_at=now,
        frame_bytes=encode_frame(frame),
    )
    return Record(topics.stream_topic(stream), device.encode(), value, now)


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
        driven = {
            "speed_kmh": 30.0,
            "heading_deg": 90.0,
            "battery_percent": 80.0,
            "odometer_km": float(turn),
            "street": "Market Street",
        }
        places = {
            device: {"lat": 53.2 + i / 500, "lon": -6.12 + turn / 10_000}
            for i, device in enumerate(self.vehicles)
        }
        told = [
            Reading("vehicle_position", device, place | driven) for device, place in places.items()
        ]
        told.append(
            Reading(
                "host_metrics",
                f"{self.name}-host",
                {"cpu_percent": 25.0 + turn % 10, "memory_percent": 50.0},
            )
        )
        if turn % 10 == 0:
            state = {"part": f"{self.name}-part", "state": "ready", "pid": 4711, "restarts": 0}
            fields = {**state, "rss_mib": 42.0, "cpu_percent": 1.0, "uptime_s": float(turn)}
            told.append(Reading("part_status", "supervisor", fields, numbered=False))
        self.writer.readings(told)


class AccessServer:
    """The real access server on a fixed port, so that a page finds it again."""

    def __init__(
        self, config: KafkaConfig, directory: Path, *, heartbeat_s: float = 15, rights: str = ""
    ) -> None:
        [self.port] = free_ports(1)
        keys = directory / "cursor.keys"
        keys.write_text(f"1 {secrets.token_hex(32)}\n")
        keys.chmod(0o600)
        toml = directory / "access.toml"
        toml.write_text(
            f'name = "page-access"\nops_url = "{OPS}"\nhost = "127.0.0.1"\nport = {self.port}\n'
            "cursor_key_file = "
            f'"{keys}"\nheartbeat_s = {heartbeat_s}\n\n'
            f'[kafka]\nbootstrap = "{config.bootstrap}"\n{rights}'
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
        self.process = part(
            "access", self._toml, self._directory / f"access-{self._starts}.log"
        ).start()
        self.process.wait_for('"event":"part.ready"')
        return self
