"""Publishes the state of every part on the stream `part_status`, which the page reads.

See `edgewake.protocol.ops.part_status`. What is lost is repeated two seconds later; while Kafka is
away nothing is queued.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from importlib import metadata
from typing import Any, Final

import psutil
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from edgewake.deploy.parts.supervisor import Keeper
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.ops.part_status import STREAM, SUPERVISOR, record_of

log = logging.getLogger("edgewake.up")

DECLARED: Final = Stream(
    name=STREAM,
    description="What the supervisor sees of each part, every two seconds.",
    fields={
        "part": FieldInfo(type=FieldType.STRING),
        "state": FieldInfo(type=FieldType.STRING),
        "pid": FieldInfo(type=FieldType.NUMBER),
        "restarts": FieldInfo(type=FieldType.NUMBER),
        "rss_mib": FieldInfo(type=FieldType.NUMBER, unit="MiBy"),
        "cpu_percent": FieldInfo(type=FieldType.NUMBER, unit="%"),
        "uptime_s": FieldInfo(type=FieldType.NUMBER, unit="s"),
        "version": FieldInfo(type=FieldType.STRING),
    },
)
INTERVAL_S: Final = 2.0
VERSION: Final = metadata.version("edgewake")
"""The version of this installation, which a part that starts now runs."""
KAFKA_TIMEOUT_S: Final = 4.0
"""The time-out of one question to Kafka; below the time in which the supervisor must stop."""
_MIB: Final = 1 << 20


class Meter:
    """What the operating system says of a part: its process and all descendants."""

    def __init__(self) -> None:
        self._families: dict[int, dict[int, psutil.Process]] = {}
        """Kept between reads, because CPU percent is a difference."""

    def read(self, pid: int) -> tuple[float, float]:
        """Resident MiB, and CPU percent of one core since the last read.

        Zeros without the process.
        """
        rss = cpu = 0.0
        for process in self._family(pid):
            try:
                rss += process.memory_info().rss / _MIB
                cpu += process.cpu_percent()
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return round(rss, 1), round(cpu, 1)

    def _family(self, pid: int) -> list[psutil.Process]:
        before = self._families.pop(pid, {})
        try:
            parent = before.get(pid) or psutil.Process(pid)
            family = {pid: parent} | {
                child.pid: before.get(child.pid, child) for child in parent.children(recursive=True)
            }
        except psutil.NoSuchProcess:
            return []
        self._families[pid] = family
        # A descendant counts from the second look: one that has just been forked still shows its
        # parent's memory as its own.
        return [process for number, process in family.items() if number == pid or number in before]


def reading(keeper: Keeper, meter: Meter, clock: Clock) -> dict[str, object]:
    """The status of one part, as a line of its file."""
    pid = keeper.child.pid if keeper.child else None
    rss, cpu = meter.read(pid) if pid else (0.0, 0.0)
    return {
        "part": keeper.part.name,
        "state": keeper.state.value,
        "pid": pid,
        "restarts": keeper.restarts,
        "rss_mib": rss,
        "cpu_percent": cpu,
        "uptime_s": round(clock.monotonic_s() - keeper.since_s, 1) if pid else 0.0,
        "version": VERSION,
        "t": clock.now_ms(),
    }


async def publish(keepers: Iterable[Keeper], bootstrap: str, clock: Clock) -> None:
    """Publish every INTERVAL_S until cancelled, through all absences of Kafka."""
    meter, keepers = Meter(), list(keepers)
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": SUPERVISOR,
        "acks": "all",
        "message.timeout.ms": round(INTERVAL_S * 1000),  # after that there is a newer one
        "queue.buffering.max.messages": 1000,
        "error_cb": lambda error: log.debug("Kafka: %s", error),
        "log_level": 2,
    }
    producer = Producer(settings)
    while not await asyncio.to_thread(_declare, producer, bootstrap):
        await clock.sleep(INTERVAL_S)
    while True:
        # To look at a part takes milliseconds. Handed over one by one each was a request, and woke
        # everybody who follows the stream.
        readings = [reading(keeper, meter, clock) for keeper in keepers]
        now_ms = clock.now_ms()
        for fields in readings:
            _produce(producer, topics.PARTS, record_of(SUPERVISOR, fields, now_ms), SUPERVISOR)
        producer.poll(0)
        await clock.sleep(INTERVAL_S)


def _declare(producer: Producer, bootstrap: str) -> bool:
    """Create the stream's topic and its row in the catalogue.

    False where Kafka is away or the catalogue does not exist yet.
    """
    admin = AdminClient(
        {
            "bootstrap.servers": bootstrap,
            "error_cb": lambda error: log.debug("Kafka: %s", error),
            "log_level": 2,
        }
    )
    settings = {"retention.ms": str(topics.PARTS_KEPT_MS)}
    topic = NewTopic(topics.PARTS, num_partitions=1, config=settings)
    try:
        if topics.STREAMS not in admin.list_topics(timeout=KAFKA_TIMEOUT_S).topics:
            return False
        admin.create_topics([topic], request_timeout=KAFKA_TIMEOUT_S)[topics.PARTS].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            return False
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    _produce(producer, topics.STREAMS, DECLARED.model_dump_json().encode(), STREAM, on_delivery)
    return producer.flush(KAFKA_TIMEOUT_S) == 0 and not failures


def _produce(
    producer: Producer, topic: str, value: bytes, key: str, on_delivery: Any = None
) -> None:
    try:
        producer.produce(topic, value, key, on_delivery=on_delivery)
    except BufferError:
        log.debug("Kafka is away: a part's state is left out")
