"""Two Kafkas, of which both must have what is acknowledged; one of them dies.

Kafka then refuses with NotEnoughReplicas what bridges and sequencer write, until it is back.
"""

from __future__ import annotations

import asyncio
import base64
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from tests.bridge.running import Device, sequenced, world
from tests.services import Kafka, Mosquitto, new_node, running_kafka, wait_until

COPIES = 2
BOTH = (
    f"offsets.topic.replication.factor={COPIES}",
    f"transaction.state.log.replication.factor={COPIES}",
)
"""Properties of both. What Kafka keeps for itself stands at both and may be written by one, so that
only our topics are refused."""
PROBE = topics.stream_topic("probe")
"""A topic that nobody else writes."""
BEFORE, AFTER = 20, 60
"""Frames before and after the death."""
SENT_AGAIN = 2
"""Frames sent again after the death: the device has asked each time, and was answered nothing."""


@contextmanager
def beside(first: Kafka, directory: Path) -> Iterator[Kafka]:
    """A second broker of the same cluster; the first one is its controller."""
    node = new_node(directory)
    data = directory / "data"
    data.mkdir(parents=True)
    for file in (first.node.directory / "data").glob("meta.properties"):
        text = re.sub(r"(?m)^node\.id=.*", "node.id=2", file.read_text())
        own = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        (data / file.name).write_text(
            re.sub(r"(?m)^directory\.id=.*", f"directory.id=A{own[1:]}", text)
        )
    lines = (
        "process.roles=broker",
        "node.id=2",
        f"controller.quorum.voters=1@{first.node.host}:{first.node.controller_port}",
        f"listeners=PLAINTEXT://{node.host}:{node.port}",
    )
    with running_kafka(node, (*BOTH, *lines)) as second:
        yield second


def refusal(bootstrap: str) -> int | None:
    """What a producer that does not try again is told of a record; None: it is kept."""
    told: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "retries": 0, "log_level": 0})
    producer.produce(PROBE, b"{}", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(60) == 0
    (error,) = told
    return None if error is None else error.code()


@pytest.mark.long
async def test_nothing_is_acknowledged_with_one_copy_and_all_goes_on_with_two(
    own_broker: Mosquitto, tmp_path: Path
) -> None:
    with (
        running_kafka(new_node(tmp_path / "kafka-1"), BOTH) as first,
        beside(first, tmp_path / "kafka-2") as second,
    ):
        async with world(own_broker, first, tmp_path, copies=COPIES) as here:
            bridge, sequencer = here.bridge("b-copies"), here.sequencer()
            device = Device(here, "dev-copies", "copies")
            await device.send(BEFORE)
            topic_admin.ensure_topics(
                KafkaConfig(bootstrap=first.bootstrap, replication=COPIES), [PROBE]
            )
            assert await asyncio.to_thread(refusal, first.bootstrap) is None

            second.process.kill()
            await asyncio.to_thread(
                wait_until,
                lambda: refusal(first.bootstrap) == KafkaError.NOT_ENOUGH_REPLICAS,
                "Kafka refuses",
            )
            # What Kafka took before it knew of the death is acknowledged.
            acknowledged = len(device.acks)
            sending = asyncio.create_task(device.send(AFTER))
            try:
                await asyncio.to_thread(
                    wait_until,
                    lambda: (
                        here.metric("b-copies", "edgewake_bridge_inflight_messages")
                        >= SENT_AGAIN * (AFTER - BEFORE)
                    ),
                    "the bridge waits with what was sent, and with what was sent again",
                )
                assert len(device.acks) == acknowledged == BEFORE
                assert bridge.is_running()
                assert sequencer.is_running()

                second.start()
                await sending
            finally:
                sending.cancel()
            assert await sequenced(here, "copies", "dev-copies", AFTER) == list(
                range(1, AFTER + 1)
            ), "a gap or a repeat"
