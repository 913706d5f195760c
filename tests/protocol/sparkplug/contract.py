"""What a host application of Sparkplug B promises at a real broker, whoever it is: the agent's
source and the bridge run the same.
"""

from __future__ import annotations

import asyncio
import json
import queue
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from edgewake.protocol.sparkplug.host import state
from edgewake.protocol.sparkplug.payload import decoded
from tests.protocol.sparkplug.test_host import X, birth, message
from tests.services import PATIENCE_S

T: Final = 1_772_352_930_000
RECORDED: Final = json.loads((Path(__file__).parent / "recorded.json").read_text())["messages"]


class HostUnderTest(Protocol):
    """What it took."""

    async def rows(self, count: int) -> list[tuple[str, int, dict[str, Any]]]:
        """Thing, time and values of all readings, once there are so many."""

    async def stale(self, count: int) -> list[str]:
        """The things whose values went stale, once so many did; these are no `rows`."""

    async def presences(self, count: int) -> list[tuple[str, bool]]:
        """Thing and whether it is there, once so many words of that came."""

    async def refused(self, count: int) -> None:
        """Wait until so many messages are lost, and no more."""


Start: TypeAlias = Callable[[str], AbstractAsyncContextManager[HostUnderTest]]
"""Starts a host of this id, which hears the group of the same name."""
Hosting: TypeAlias = AsyncIterator[HostUnderTest]


class Client:
    """An edge node's connection, by paho."""

    def __init__(self, connection: paho.Client) -> None:
        self._connection = connection
        self.heard: queue.Queue[paho.MQTTMessage] = queue.Queue()

    def publish(self, topic: str, data: bytes, **more: Any) -> None:
        """And wait until the broker has it."""
        self._connection.publish(topic, data, **more).wait_for_publish(PATIENCE_S)

    async def next(self, topic: str) -> paho.MQTTMessage:
        """The next message of a topic."""
        while True:
            one = await asyncio.to_thread(self.heard.get, True, PATIENCE_S)
            if one.topic == topic:
                return one

    async def says(self, topic: str, *, online: bool) -> dict[str, Any]:
        """The next message of the topic that says so."""
        while True:
            said: dict[str, Any] = json.loads((await self.next(topic)).payload)
            if said["online"] is online:
                return said


@contextmanager
def client(port: int, *filters: str) -> Iterator[Client]:
    """Connected and subscribed."""
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


async def it_says_that_it_is_there_and_when_it_leaves(port: int, start: Start) -> None:
    topic = "spBv1.0/STATE/h1"
    with client(port, topic) as watching:
        async with start("h1"):
            said = await watching.next(topic)
            assert (json.loads(said.payload)["online"], said.qos) == (True, 1)
            since = json.loads(said.payload)["timestamp"]
            with client(port, topic) as later:
                kept = await later.next(topic)
                assert (kept.retain, json.loads(kept.payload)["online"]) == (True, True)
            watching.publish(topic, state(False, since), qos=1, retain=True)
            await watching.says(topic, online=False)
            again = await watching.says(topic, online=True)
            assert again == {"online": True, "timestamp": since}, "a late will is put right"
        left = await watching.says(topic, online=False)
        assert left["timestamp"] > since, "the time of its leaving"
    with client(port, topic) as later:
        kept = await later.next(topic)
        is_online = json.loads(kept.payload)["online"]
        assert (kept.retain, kept.qos, is_online) == (True, 1, False)


async def it_takes_births_data_and_deaths(port: int, start: Start) -> None:
    """Those that a real edge node sent."""
    with client(port, "spBv1.0/STATE/plant") as node:
        async with start("plant") as one:
            await node.says("spBv1.0/STATE/plant", online=True)
            for each in RECORDED:
                node.publish(each["topic"], bytes.fromhex(each["payload"]))
            rows = await one.rows(4)
            assert sorted((thing, t, _chosen(values)) for thing, t, values in rows) == [
                ("plant.gw-1", T, {"Speed": -5}),
                ("plant.gw-1", T + 1000, {"Speed": -6}),
                ("plant.gw-1.boiler", T, {"Temperature": 21.5}),
                ("plant.gw-1.boiler", T + 2000, {"Temperature": 22.5}),
            ]
            assert sorted(await one.stale(2)) == ["plant.gw-1", "plant.gw-1.boiler"]
            words = await one.presences(4)
            assert [is_there for thing, is_there in words if thing == "plant.gw-1"] == [True, False]
            boiler = [is_there for thing, is_there in words if thing == "plant.gw-1.boiler"]
            assert (boiler[0], boiler[-1]) == (True, False)
            await one.refused(0)


def _chosen(values: dict[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in ("Speed", "Temperature") if values.get(name) is not None}


async def it_asks_nodes_for_their_births(port: int, start: Start) -> None:
    """One that was not heard before, and one of which a message is missing."""
    asked = "spBv1.0/h2/NCMD/"
    with client(port, "spBv1.0/STATE/h2", f"{asked}+") as node:
        async with start("h2") as one:
            await node.says("spBv1.0/STATE/h2", online=True)
            node.publish("spBv1.0/h2/NDATA/n1", message(4, {"alias": 1, "double_value": 1.0}))
            said = await node.next(f"{asked}n1")
            assert (said.qos, said.retain) == (0, False)
            (metric,) = decoded(said.payload).metrics
            assert (metric.name, metric.value) == ("Node Control/Rebirth", True)
            node.publish("spBv1.0/h2/NBIRTH/n2", birth(0, 0, X))
            node.publish("spBv1.0/h2/NDATA/n2", message(2, {"alias": 1, "double_value": 2.0}))
            await node.next(f"{asked}n2")
            node.publish("spBv1.0/h2/NBIRTH/n2", birth(3, 0, X))
            node.publish("spBv1.0/h2/NDATA/n2", message(4, {"alias": 1, "double_value": 4.0}))
            rows = await one.rows(3)
            assert [values["x"] for _, _, values in rows] == [0.5, 0.5, 4.0]
            await one.refused(2)


async def its_will_speaks_when_it_is_cut_off(port: int, start: Start) -> None:
    """`start` ends with a kill."""
    topic = "spBv1.0/STATE/h3"
    with client(port, topic) as watching:
        async with start("h3") as one:
            since = (await watching.says(topic, online=True))["timestamp"]
            watching.publish("spBv1.0/h3/NBIRTH/n", birth(0, 0, X))
            await one.rows(1)
        will = await watching.says(topic, online=False)
        assert will == {"online": False, "timestamp": since}, "the time of its birth"
    with client(port, topic) as later:
        kept = await later.next(topic)
        assert (kept.retain, kept.qos, json.loads(kept.payload)) == (True, 1, will)
