"""The operations API on a Kafka that holds nothing yet: it makes its topics itself, and reads them
once they are there.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.ops.letters.dead_letters import DeadLetterIndex
from edgewake.cloud.ops.services.reader import Reader, _check_partitions
from edgewake.protocol import topics
from edgewake.protocol.errors import Unavailable
from tests.ops.service import running
from tests.services import STAYS, run_kafka


@pytest.mark.long
def test_it_is_ready_on_a_kafka_without_a_topic(tmp_path: Path) -> None:
    with run_kafka(tmp_path / "kafka", *STAYS) as kafka, running(kafka.bootstrap, tmp_path) as ops:
        assert ops.client.get("/readyz").status_code == 200
        assert ops.client.get("/v1/leases").json()["items"] == []


def test_a_table_that_is_being_made_is_waited_for_and_not_read_in_part() -> None:
    _check_partitions({"ew.leases": 64, "ew.devices": 1}, {"ew.leases": 64, "ew.devices": 1})
    with pytest.raises(Unavailable, match=r"ew\.leases, ew\.queries: is being made"):
        _check_partitions(
            {"ew.leases": 2, "ew.devices": 1}, {"ew.leases": 64, "ew.devices": 1, "ew.queries": 1}
        )


def message(error: KafkaError | None = None) -> Any:
    """A row of `ew.queries`, or what Kafka says of the partition in its place."""
    return SimpleNamespace(
        error=lambda: error,
        topic=lambda: topics.QUERIES,
        partition=lambda: 0,
        key=lambda: b"q",
        value=lambda: b"{}",
        offset=lambda: 1,
    )


async def test_rows_that_are_read_again_are_no_news_and_a_partition_that_ends_is_read_anew() -> (
    None
):
    came: list[bool] = []
    reader = Reader(
        KafkaConfig(bootstrap="127.0.0.1:1"),
        letters=DeadLetterIndex(),
        on_changes=lambda _, is_news: came.append(is_news),
        on_offsets=lambda *_: None,
        rng=random.Random(1),
        ready=asyncio.Event(),
    )
    end = KafkaError(KafkaError._PARTITION_EOF)
    for _ in range(2):  # at the start, and after Kafka was away
        reader._unread = {(topics.QUERIES, 0)}
        await asyncio.to_thread(reader._hand_over, [message()])
        await asyncio.to_thread(reader._hand_over, [message(), message(end)])
        await asyncio.to_thread(reader._hand_over, [message()])
    assert came == [False, False, True] * 2
    with pytest.raises(KafkaException):
        reader._hand_over([message(KafkaError(KafkaError._AUTO_OFFSET_RESET))])
