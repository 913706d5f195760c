"""Two installations, each with a Kafka of its own, on one MQTT broker: neither takes anything from
the other.
"""

from __future__ import annotations

import pytest

from edgewake.protocol import topics
from tests.bridge.fleet import until
from tests.bridge.running import Device, World, numbers, read, world
from tests.services import run_kafka

MESSAGES = 200


@pytest.mark.long
async def test_each_gets_every_message_and_a_bridge_of_the_same_name_is_no_twin(
    here: World,
) -> None:
    """Under one share name each would get a part, and under one client id they would throw each
    other out.
    """
    with run_kafka(here.folder / "second-kafka") as node:
        (here.folder / "second").mkdir()
        async with world(here.broker, node, here.folder / "second") as second:
            here.bridge("bridge-1")
            second.bridge("bridge-1", installation="second")
            device = Device(here, "both-1", "both")
            await device.send(MESSAGES)

            def got(one: World) -> set[int]:
                return set(numbers(read(one.config, topics.UP, device=device.name)))

            for one in (here, second):
                await until(
                    lambda one=one: got(one) == set(range(1, MESSAGES + 1)),
                    "every message is there",
                )
            for one in (here, second):
                assert one.metric("bridge-1", "edgewake_bridge_others") == 0, (
                    "the other one's beats are not heard"
                )
                assert one.parts[0].is_running()
