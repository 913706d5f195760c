"""A judge that comes back: what waited is judged before time passes. Kafka is a list here."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from confluent_kafka import KafkaError

from edgewake.cloud.alerts import judge as judge_module
from edgewake.cloud.alerts.judge import KAFKA_S, Judge, _Session, judged_to
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.ops.alert import Alert, Note, Place, Rule, State
from tests.alerts.build import T0, at, rule

TOPIC = "ew.q.hot.1"
RULE = rule(query="hot", by=("device",), when="temperature > 30", for_s=300, tell=("oncall",))
PENDING = Alert(
    rule="hot",
    key="oven",
    basis=RULE.basis,
    state=State.PENDING,
    since=T0,
    began=T0,
    last_at=T0,
)


@dataclass
class Record:
    """A record, or the end of a partition."""

    at_s: float = 0
    temperature: float = 0
    number: int = 0
    of: int = 0
    is_end: bool = False

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self.is_end else None

    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return self.of

    def offset(self) -> int:
        return self.number

    def timestamp(self) -> tuple[int, int]:
        return 1, at(self.at_s)

    def key(self) -> bytes:
        return b"oven"

    def value(self) -> bytes:
        return orjson.dumps({"device": "oven", "temperature": self.temperature})


class Kafka:
    """The consumers and the producer of a judge."""

    def __init__(self, *records: Record) -> None:
        self.records = deque(records)
        self.is_assigned = False

    def incremental_assign(self, places: list[Any]) -> None:
        self.is_assigned = True

    def poll(self, timeout_s: float) -> Record | None:
        return self.records.popleft() if self.is_assigned and self.records else None

    def consume(self, most: int, timeout_s: float) -> list[Record]:
        return []

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


@dataclass
class Table:
    rules: dict[str, Rule] = field(default_factory=lambda: {"hot": RULE})
    words: dict[str, Any] = field(default_factory=dict)


class HourLater:
    """A clock that stands at the moment the server is back."""

    passed_s = 0.0

    def now_ms(self) -> int:
        return at(3600 + self.passed_s)

    def monotonic_s(self) -> float:
        return self.passed_s


def session(
    monkeypatch: pytest.MonkeyPatch, kafka: Kafka, clock: HourLater, sent: list[Note]
) -> _Session:
    def load(_config: Any, _name: str, tables: dict[str, Any], **_more: Any) -> None:
        (take,) = tables.values()
        take(PENDING.id, PENDING.model_dump_json().encode())
        place = Place(topic=TOPIC, offsets={0: 0})
        take(f"place|{TOPIC}", place.model_dump_json().encode())

    monkeypatch.setattr(judge_module, "read_once", load)
    for name in ("transactional_producer", "consumer"):
        monkeypatch.setattr(judge_module.clients, name, lambda *_, **__: kafka)
    monkeypatch.setattr(judge_module.clients, "fence", lambda *_: None)
    monkeypatch.setattr(judge_module.metadata, "partition_count", lambda *_: 1)
    monkeypatch.setattr(judge_module.offsets, "watermarks", lambda *_: (0, 9))
    ids = iter("abcdefgh")
    return _Session(
        Judge(
            config=KafkaConfig(bootstrap="127.0.0.1:1"),
            table=Table(),
            topic_of=lambda _: TOPIC,
            clock=clock,  # type: ignore[arg-type]
            new_id=lambda: next(ids),
            send=sent.append,
            is_loaded=lambda: True,
        )
    )


def test_what_was_over_while_nobody_judged_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Note] = []
    kafka = Kafka(Record(60, 20, number=7), Record(is_end=True))
    one = session(monkeypatch, kafka, HourLater(), sent)
    for _ in range(5):
        one.turn()
    assert sent == []
    assert one._book.alerts["hot"] == {}


def test_what_held_meanwhile_is_told_by_the_times_of_the_readings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[Note] = []
    kafka = Kafka(Record(60, 40, number=7), Record(400, 41, number=8), Record(is_end=True))
    one = session(monkeypatch, kafka, HourLater(), sent)
    for _ in range(5):
        one.turn()
    assert [note.firing for note in sent] == [("oven",)]
    assert one._book.alerts["hot"]["oven"].since == at(300)


def test_a_partition_that_gives_nothing_does_not_stop_time_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[Note] = []
    clock = HourLater()
    one = session(monkeypatch, Kafka(), clock, sent)
    one.turn()
    assert sent == []
    clock.passed_s = KAFKA_S
    one.turn()
    assert [note.firing for note in sent] == [("oven",)]


def test_the_partition_that_is_furthest_back_says_what_is_judged() -> None:
    records: list[Any] = [Record(3600, of=0), Record(60, of=1), Record(70, of=1)]
    assert judged_to(records) == at(70)
    assert judged_to([]) is None
