"""Transactions of batches that take longer than Kafka lets one be open, and of a process that was
fenced, on a real Kafka.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException

from edgewake.cloud.analysis.lanes.failure_causes import fault_of
from edgewake.cloud.analysis.lanes.failures import Fault
from edgewake.cloud.analysis.results import transaction
from edgewake.cloud.analysis.results.emit import Output
from edgewake.cloud.analysis.results.transaction import GROWTH, LaneTransactions, Overlong
from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from tests.analysis.support import read, unique
from tests.services import PATIENCE_S

OPEN_MS = 1_000


@pytest.fixture
def topic(kafka_config: KafkaConfig, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(transaction, "OPEN_MS", OPEN_MS)
    monkeypatch.setattr(transaction, "_open_ms", {})
    name = unique("ew.q.long") + ".1"
    topic_admin.ensure_topics(kafka_config, [name])
    return name


def slowly(topic: str, until_s: float) -> Iterator[Output]:
    """Results that take until then to make; Kafka looks for transactions that are open too long
    every ten seconds.
    """
    while time.monotonic() < until_s:
        yield Output(topic, b"k", b'{"is":"unfinished"}')
        time.sleep(0.02)


def test_a_batch_that_takes_too_long_has_more_time_when_it_comes_again(
    kafka_config: KafkaConfig, topic: str
) -> None:
    """It failed for ever: each time after the same time, with the same readings."""
    lane = unique("lane")
    transactions = LaneTransactions(kafka_config, lane)
    with pytest.raises(
        Overlong, match="ends a transaction after 1 s, and the results of one batch took longer"
    ) as error:
        transactions.write(slowly(topic, time.monotonic() + PATIENCE_S))
    transactions.close()
    assert fault_of(error.value) is Fault.SURROUNDINGS, (
        "no query is blamed, and the lane starts anew"
    )
    assert transaction._open_ms == {lane: GROWTH * OPEN_MS}
    again = LaneTransactions(kafka_config, lane)
    again.write([Output(topic, b"k", b'{"is":"whole"}')])
    again.close()
    assert [one.value for one in read(kafka_config, topic)] == [{"is": "whole"}]


def test_who_was_fenced_gets_no_more_time(kafka_config: KafkaConfig, topic: str) -> None:
    lane = unique("lane")
    frozen, other = LaneTransactions(kafka_config, lane), None

    def outputs() -> Iterator[Output]:
        nonlocal other
        yield Output(topic, b"k", b"of the frozen one")
        other = LaneTransactions(kafka_config, lane)
        time.sleep(1.5 * OPEN_MS / 1000)  # as a process does that stands still
        yield Output(topic, b"k", b"of the frozen one")

    with pytest.raises(KafkaException) as error:
        frozen.write(outputs())
    assert not isinstance(error.value, Overlong)
    assert transaction._open_ms == {}
    frozen.close()
    assert other is not None
    other.close()
