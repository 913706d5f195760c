"""Bounds on named sets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.ops.services.named_desk import NamedDesk
from edgewake.cloud.ops.tables.table_writer import TableWriter
from edgewake.cloud.ops.tables.tables import Change, OpsTables
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.ops.named_set import MEMBERS_MAX, NamedSet

FULL = NamedSet(
    name="fleet",
    members=tuple(f"car-{number}" for number in range(MEMBERS_MAX)),
    version=1,
    changed_at=1,
    changed_by="anna",
)


@pytest.fixture
def desk() -> Iterator[NamedDesk]:
    """One with a full set; what is refused reaches no Kafka, so none is there."""
    tables, clock = OpsTables(), SystemClock()
    tables.apply(Change(topics.SETS, "fleet", FULL.model_dump_json().encode()), now=2)
    writer = TableWriter(KafkaConfig(bootstrap="127.0.0.1:1"), tables, clock)
    yield NamedDesk(writer, tables, clock)
    writer.close()


async def test_one_member_more_than_a_set_may_have_is_refused_in_words(desk: NamedDesk) -> None:
    with pytest.raises(Problem) as refusal:
        await desk.change_set("fleet", ["car-x"], [], by="anna")
    assert (refusal.value.status, refusal.value.detail) == (
        422,
        "10001 members: expected at most 10000",
    )


async def test_what_changes_nothing_is_not_written(desk: NamedDesk) -> None:
    assert await desk.change_set("fleet", ["car-1", "car-x"], ["car-x"], by="ben") == FULL
