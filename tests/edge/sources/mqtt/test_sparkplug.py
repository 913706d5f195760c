"""The agent as a host application: the contract that the bridge holds to, too."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mqtt5
import pytest

from edgewake.edge.sources.mqtt.mqtt_subscribe import Link
from edgewake.edge.sources.mqtt.sparkplug import Sparkplug, SparkplugConfig, body_of
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.sparkplug.host import Reading, ThingPresence
from tests.edge.scripted_broker import Broker, by
from tests.edge.sources.cage import Caged, caged, configured, served
from tests.edge.sources.sink import context, running
from tests.protocol.sparkplug import contract
from tests.protocol.sparkplug.test_host import X, birth
from tests.services import Mosquitto

pytestmark = pytest.mark.services


class Agent:
    """What a source took."""

    def __init__(self, one: Caged) -> None:
        self._one = one

    def _rows(self) -> list[tuple[str, int, dict[str, Any]]]:
        one = self._one
        if not one.times():
            return []
        names = ("thing", "online", "stale", "x", "Speed", "Temperature")
        columns = [one.column(name) for name in names]
        return [
            (thing, t, dict(zip(names[1:], values, strict=True)))
            for t, thing, *values in zip(one.times(), *columns, strict=True)
        ]

    def _measured(self) -> list[tuple[str, int, dict[str, Any]]]:
        return [row for row in self._rows() if row[2]["online"] is None and row[2]["stale"] is None]

    async def rows(self, count: int) -> list[tuple[str, int, dict[str, Any]]]:
        await self._one.until(lambda: len(self._measured()) >= count, "readings")
        return self._measured()

    async def stale(self, count: int) -> list[str]:
        def found() -> list[str]:
            return [thing for thing, _, values in self._rows() if values["stale"]]

        await self._one.until(lambda: len(found()) >= count, "stale ones")
        return found()

    async def presences(self, count: int) -> list[tuple[str, bool]]:
        def found() -> list[tuple[str, bool]]:
            words = ((thing, values["online"]) for thing, _, values in self._rows())
            return [(thing, is_there) for thing, is_there in words if is_there is not None]

        await self._one.until(lambda: len(found()) >= count, "presences")
        return found()

    def units(self) -> dict[str, str]:
        return self._one.units()

    async def refused(self, count: int) -> None:
        assert sum(self._one.intake.refused.values()) == count


class Agents:
    """Starts them."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder, self._port = folder, port

    @asynccontextmanager
    async def __call__(self, host_id: str) -> AsyncIterator[Agent]:
        config = SparkplugConfig.checked(
            {"type": "sparkplug", "stream": "s", "host_id": host_id, "group": host_id,
             "reorder_s": 0.2, "broker": BrokerConfig(port=self._port)}
        )  # fmt: skip
        async with caged(self._folder, config) as one:
            yield Agent(one)


def test_a_metric_called_like_a_field_of_ours_stands_beside_it() -> None:
    one = Reading("g/n", 5, {"thing": "pump", "historical": 3, "x": 1}, is_historical=True)
    assert body_of(one, has_devices=True) == {
        "t": 5, "thing": "g.n", "thing_": "pump", "historical": True, "historical_": 3, "x": 1,
    }  # fmt: skip


@pytest.mark.parametrize("has_devices", [True, False])
def test_a_death_is_the_presence_of_a_thing_that_is_a_device(has_devices: bool) -> None:
    found = body_of(ThingPresence("g/n", False, 5), has_devices=has_devices)
    word = {"thing_online": False} if has_devices else {}
    assert found == {"t": 5, "thing": "g.n", "online": False} | word


@pytest.mark.long
async def test_it_says_that_it_is_there_and_when_it_leaves(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    start = Agents(tmp_path, mosquitto.port)
    await contract.it_says_that_it_is_there_and_when_it_leaves(mosquitto.port, start)


async def test_it_takes_births_data_and_deaths(tmp_path: Path, mosquitto: Mosquitto) -> None:
    start = Agents(tmp_path, mosquitto.port)
    await contract.it_takes_births_data_and_deaths(mosquitto.port, start)


@pytest.mark.long
async def test_it_asks_nodes_for_their_births(tmp_path: Path, mosquitto: Mosquitto) -> None:
    start = Agents(tmp_path, mosquitto.port)
    await contract.it_asks_nodes_for_their_births(mosquitto.port, start)


async def test_units_that_nodes_say_are_those_of_the_fields(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    told = {"keys": ["engUnit"], "values": [{"string_value": "degC"}]}
    metric = X | {"name": "Boiler/Temp", "properties": told}
    async with Agents(tmp_path, mosquitto.port)("units") as one:
        with contract.client(mosquitto.port, "spBv1.0/STATE/units") as node:
            await node.says("spBv1.0/STATE/units", online=True)
            node.publish("spBv1.0/units/NBIRTH/n", birth(0, 0, metric))
            await one.rows(1)
        assert one.units() == {"Boiler_Temp": "degC"}


async def test_its_will_speaks_when_it_is_cut_off(
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
    start = Agents(tmp_path, mosquitto.port)
    await contract.its_will_speaks_when_it_is_cut_off(mosquitto.port, start)


async def test_what_it_says_first_to_a_broker_is_in_the_order_that_nodes_rely_on() -> None:
    """A will, a session that nothing is left of, its subscriptions, and then its birth."""
    brokers: list[Broker] = []

    async def script(broker: Broker) -> None:
        await broker.subscribed()
        await broker.hears(mqtt5.PublishPacket, 1)

    async with served(by(script, brokers)) as port:
        config = configured("sparkplug", host_id="h", broker={"port": port})
        async with running(Sparkplug(config, context())) as one:
            await one.until(
                lambda: any(
                    isinstance(packet, mqtt5.PublishPacket)
                    for broker in brokers
                    for packet in broker.heard
                )
            )
            connect, *subscribed, birth = brokers[0].heard
    assert isinstance(connect, mqtt5.ConnectPacket)
    assert (connect.clean_start, connect.session_expiry_interval) == (True, 0)
    will = connect.will
    assert will is not None
    assert (will.topic, will.qos, will.retain) == ("spBv1.0/STATE/h", 1, True)
    filters = [
        each.pattern
        for packet in subscribed
        if isinstance(packet, mqtt5.SubscribePacket)
        for each in packet.topic_filters
    ]
    assert sorted(filters) == ["spBv1.0/+/#", "spBv1.0/STATE/h"]
    assert isinstance(birth, mqtt5.PublishPacket)
    assert (birth.topic, birth.qos, birth.retain) == ("spBv1.0/STATE/h", 1, True)
    since = json.loads(will.payload or b"")["timestamp"]
    assert json.loads(will.payload or b"") == {"online": False, "timestamp": since}
    assert json.loads(birth.payload) == {"online": True, "timestamp": since}
