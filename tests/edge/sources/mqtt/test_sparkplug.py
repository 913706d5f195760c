"""The host application at a real broker: what it says of itself, what it takes and asks."""

from __future__ import annotations

import asyncio
import json
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mqtt5
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from edgewake.edge.sources.mqtt.mqtt_subscribe import Link
from edgewake.edge.sources.mqtt.sparkplug import Sparkplug, SparkplugConfig, state
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.sparkplug.payload import decoded
from tests.edge.sources.cage import Caged, caged
from tests.protocol.sparkplug.test_host import X, birth, message
from tests.services import PATIENCE_S, Mosquitto

pytestmark = pytest.mark.services
T = 1_772_352_930_000


def config(port: int, host_id: str) -> SparkplugConfig:
    return SparkplugConfig.checked(
        {"type": "sparkplug", "stream": "s", "host_id": host_id, "group": host_id,
         "reorder_s": 0.2, "broker": BrokerConfig(port=port)}
    )  # fmt: skip


class Client:
    """An edge node's connection, by paho."""

    def __init__(self, connection: paho.Client) -> None:
        self._connection = connection
        self.heard: queue.Queue[paho.MQTTMessage] = queue.Queue()

    def publish(self, topic: str, data: bytes, **more: Any) -> None:
        self._connection.publish(topic, data, **more).wait_for_publish(PATIENCE_S)

    async def next(self, topic: str) -> paho.MQTTMessage:
        """The next message of a topic."""
        while True:
            one = await asyncio.to_thread(self.heard.get, True, PATIENCE_S)
            if one.topic == topic:
                return one


@contextmanager
def client(port: int, *filters: str) -> Iterator[Client]:
    connection = paho.Client(CallbackAPIVersion.VERSION2)
    found = Client(connection)
    subscribed: queue.Queue[int] = queue.Queue()
    connection.on_message = lambda _client, _data, one: found.heard.put(one)
    connection.on_subscribe = lambda *_: subscribed.put(1)
    connection.connect("127.0.0.1", port)
    connection.loop_start()
    try:
        connection.subscribe([(one, 1) for one in filters])
        subscribed.get(timeout=PATIENCE_S)
        yield found
    finally:
        connection.disconnect()
        connection.loop_stop()


async def born(one: Caged, node: Client, group: str) -> None:
    """The source hears the node."""
    await node.next(f"spBv1.0/STATE/{group}")
    node.publish(f"spBv1.0/{group}/NBIRTH/n", birth(0, 0, X))
    await one.until(lambda: one.column("x"), "the birth")


async def test_it_says_that_it_is_there_and_its_end_says_that_it_is_not(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    topic = "spBv1.0/STATE/h1"
    with client(mosquitto.port, topic) as watching:
        async with caged(tmp_path, config(mosquitto.port, "h1")):
            said = await watching.next(topic)
            assert (json.loads(said.payload)["online"], said.qos) == (True, 1)
            since = json.loads(said.payload)["timestamp"]
            with client(mosquitto.port, topic) as later:
                kept = await later.next(topic)
                assert (kept.retain, json.loads(kept.payload)["online"]) == (True, True)
            watching.publish(topic, state(False, since), qos=1, retain=True)
            assert json.loads((await watching.next(topic)).payload)["online"] is False
            again = json.loads((await watching.next(topic)).payload)
            assert again == {"online": True, "timestamp": since}, "a late will is put right"
        gone = await watching.next(topic)
        assert json.loads(gone.payload)["online"] is False
    with client(mosquitto.port, topic) as later:
        kept = await later.next(topic)
        assert (kept.retain, json.loads(kept.payload)["online"]) == (True, False)


async def test_births_data_and_deaths_become_readings(tmp_path: Path, mosquitto: Mosquitto) -> None:
    recorded = json.loads(
        (Path(__file__).parents[3] / "protocol/sparkplug/recorded.json").read_text()
    )["messages"]
    with client(mosquitto.port, "spBv1.0/STATE/plant") as node:
        async with caged(tmp_path, config(mosquitto.port, "plant")) as one:
            await node.next("spBv1.0/STATE/plant")
            for each in recorded:
                node.publish(each["topic"], bytes.fromhex(each["payload"]))
            await one.until(lambda: one.column("online").count(False) == 2, "both deaths")
            measured = [
                row
                for row in zip(
                    one.column("thing"), one.column("Speed"), one.column("Temperature"),
                    one.times(), strict=True,
                )
                if row[1:3] != (None, None)
            ]  # fmt: skip
            assert measured == [
                ("plant.gw-1", -5, None, T), ("plant.gw-1.boiler", None, 21.5, T),
                ("plant.gw-1", -6, None, T + 1000), ("plant.gw-1.boiler", None, 22.5, T + 2000),
            ]  # fmt: skip
            assert dict(one.intake.refused) == {}


async def test_a_node_that_was_not_heard_or_lost_a_message_is_asked_for_its_births(
    tmp_path: Path, mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgewake.protocol.sparkplug.host.REBIRTH_S", 0.0)
    asked = "spBv1.0/h2/NCMD/n"
    with client(mosquitto.port, "spBv1.0/STATE/h2", asked) as node:
        async with caged(tmp_path, config(mosquitto.port, "h2")) as one:
            await node.next("spBv1.0/STATE/h2")
            node.publish("spBv1.0/h2/NDATA/n", message(4, {"alias": 1, "double_value": 1.0}))
            said = await node.next(asked)
            assert (said.qos, said.retain) == (0, False)
            (metric,) = decoded(said.payload).metrics
            assert (metric.name, metric.value) == ("Node Control/Rebirth", True)
            node.publish("spBv1.0/h2/NBIRTH/n", birth(0, 0, X))
            node.publish("spBv1.0/h2/NDATA/n", message(2, {"alias": 1, "double_value": 2.0}))
            await node.next(asked)
            node.publish("spBv1.0/h2/NBIRTH/n", birth(3, 0, X))
            node.publish("spBv1.0/h2/NDATA/n", message(4, {"alias": 1, "double_value": 4.0}))
            await one.until(lambda: 4.0 in one.column("x"), "the data after the birth")
            assert [x for x in one.column("x") if x is not None] == [0.5, 0.5, 4.0]
            assert one.intake.refused == {"shape": 2}


async def test_its_will_speaks_for_it_when_it_is_cut_off(
    tmp_path: Path, mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a word of its own: as after a kill."""
    said, sent = Sparkplug._say, Link.send
    monkeypatch.setattr(
        Sparkplug, "_say", lambda own, link, is_online, t: is_online and said(own, link, True, t)
    )
    monkeypatch.setattr(
        Link,
        "send",
        lambda own, one: isinstance(one, mqtt5.DisconnectPacket) or sent(own, one),
    )
    topic = "spBv1.0/STATE/h3"
    with client(mosquitto.port, topic) as watching:
        async with caged(tmp_path, config(mosquitto.port, "h3")) as one:
            await born(one, watching, "h3")
        while json.loads((await watching.next(topic)).payload)["online"]:
            pass
