"""What an erasure asks Kafka with when an answer did not come."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.ops.services.eraser import EraserDesk
from edgewake.cloud.ops.services.erasing import KafkaEraser
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import Unavailable
from tests.services import Kafka

pytestmark = pytest.mark.services


@pytest.mark.parametrize(
    "failure",
    [Unavailable("no answer"), KafkaException(KafkaError(KafkaError._TRANSPORT))],
    ids=["without an answer", "without a broker"],
)
async def test_a_client_that_failed_is_replaced(kafka: Kafka, failure: Exception) -> None:
    """A client that Kafka shut out may never see a broker again."""
    nobody = cast(Any, None)
    desk = EraserDesk(
        KafkaConfig(bootstrap=kafka.bootstrap),
        nobody,
        nobody,
        nobody,
        SystemClock(),
        new_id=lambda: "id",
        settle_s=0,
        has_lake=lambda: False,
    )

    def fail(_: KafkaEraser) -> None:
        raise failure

    first = await desk._blocking(lambda client: client)
    assert await desk._blocking(lambda client: client) is first, "the control"
    with pytest.raises(type(failure)):
        await desk._blocking(fail)
    second = await desk._blocking(lambda client: client)
    assert second is not first
    assert second.topic_ids(["none"]) == {}, "it answers"
    second.close()


def test_topics_that_are_gone_already_are_deleted(kafka: Kafka) -> None:
    """A server may have died after it deleted them; the next one ended at it, again and again."""
    client = KafkaEraser(KafkaConfig(bootstrap=kafka.bootstrap), lambda: True)
    client.delete({"ew.s.gone": "id"})
    client.delete({})
    client.close()
