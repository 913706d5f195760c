"""An alert as a message on a broker nearby."""

from __future__ import annotations

import json
from pathlib import Path

import mqtt5

from tests.edge.actions.helpers import config, raised, runs, until
from tests.edge.actions.test_runner import Listener
from tests.edge.helpers import opened
from tests.services import Mosquitto


async def test_a_message_is_published_on_a_broker_nearby(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    listener = Listener()
    link = await listener.listen(mosquitto.port, "site/siren")
    with opened(tmp_path) as events:
        one = config(type="mqtt", topic="site/siren", broker={"port": mosquitto.port})
        async with runs(events, one) as runner:
            await raised(events, 1, 2, 3)
            await until(lambda: runner.counts()["done"] == 3)
    await until(lambda: len(listener.came) == 3)
    link.cut("over")
    first: mqtt5.PublishPacket = listener.came[0]
    assert [json.loads(packet.payload)["n"] for packet in listener.came] == [1, 2, 3]
    assert (
        first.topic,
        first.content_type,
        len({packet.user_properties[0][1] for packet in listener.came}),
    ) == (
        "site/siren",
        "application/json",
        3,
    )
