"""What was acknowledged is sequenced before Kafka deletes it: bridges stop accepting when the
sequencer is too far behind.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial

import pytest

from edgewake.cloud.bridge.flow.backlog import Backlog, BacklogCheck, is_behind
from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from tests.bridge.running import Device, World, numbers, read, sequenced, up_setting
from tests.bridge.test_offsets import error_of
from tests.services import Kafka, wait_until

RETENTION_MS = 12_000


@pytest.mark.parametrize(
    ("sequenced", "young_from", "expected"),
    [
        ({}, {0: 0, 1: 0}, False),
        ({}, {0: 0, 1: 5}, True),
        ({0: 7, 1: 5}, {0: 7, 1: 5}, False),
        ({0: 9, 1: 5}, {0: 7, 1: 5}, False),
        ({0: 6, 1: 5}, {0: 7, 1: 5}, True),
    ],
)
def test_one_partition_with_an_old_record_that_waits_is_enough(
    sequenced: dict[int, int], young_from: dict[int, int], expected: bool
) -> None:
    assert is_behind(Backlog(sequenced, young_from)) is expected


def test_a_record_that_comes_between_two_questions_is_not_taken_for_one_that_waits_for_long(
    own_kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = KafkaConfig(bootstrap=own_kafka.bootstrap)
    topic_admin.ensure_topics(config, [topics.UP])
    check, producer = BacklogCheck(config, "test-backlog"), clients.producer(config, "test-backlog")
    places = check._places
    wait_until(lambda: error_of(places.ends) == 0, "the topic that was just made has leaders")
    empty = [partition for partition, end in places.ends().items() if end == 0]

    def then_a_record_comes(
        question: Callable[..., Mapping[int, int]],
    ) -> Callable[..., Mapping[int, int]]:
        def ask(*arguments: int) -> Mapping[int, int]:
            answer = question(*arguments)
            came.append(empty.pop())
            producer.produce(topics.UP, b"{}", b"test", came[-1])
            producer.flush()
            return answer

        return ask

    came: list[int] = []
    for name in ("ends", "from_time", "sequenced"):
        monkeypatch.setattr(places, name, then_a_record_comes(getattr(places, name)))
    assert not check.look(time.time_ns() // 1_000_000)
    assert len(came) == 3, "the control: after each question one came into a partition without any"
    check.close()


async def test_bridges_accept_nothing_while_the_sequencer_is_too_far_behind_and_nothing_is_lost(
    here: World,
) -> None:
    """Control: before the bound they do accept, and with a sequencer that runs they go on."""
    sequencer = await asyncio.to_thread(here.sequencer)
    bridge = here.bridge("behind-1")
    device = Device(here, "behind-d", "behind")
    await device.send(1)
    await sequenced(here, "behind", "behind-d", 1)
    sequencer.freeze()
    with up_setting(here.config, "retention.ms", RETENTION_MS):
        await device.send(10)
        assert len(device.acks) == 10
        held_back = partial(here.metric, "behind-1", "edgewake_bridge_held_back")
        await asyncio.to_thread(
            wait_until,
            lambda: held_back() == 1,
            "the oldest record is too old: nothing is accepted",
        )
        late = asyncio.create_task(device.send(30))
        thawed_ms = time.time_ns() // 1_000_000
        sequencer.thaw()
        await late
    assert await sequenced(here, "behind", "behind-d", 30) == list(range(1, 31))
    # The first ten may be there twice: an answer that takes its time lets the device send again.
    received = [
        one.timestamp()[1]
        for one in read(here.config, topics.UP, device="behind-d")
        if numbers([one])[0] > 10
    ]
    assert all(at >= thawed_ms for at in received), (
        "a bridge accepted what Kafka might have deleted"
    )
    assert '"event":"bridge.goes_on"' in bridge.output()
