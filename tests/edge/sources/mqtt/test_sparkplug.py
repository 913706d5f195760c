"""The agent as a host application: the contract that the bridge holds to, too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mqtt5
import pytest

from edgewake.edge.sources.mqtt.mqtt_subscribe import Link
from edgewake.edge.sources.mqtt.sparkplug import Sparkplug, SparkplugConfig
from edgewake.protocol.broker import BrokerConfig
from tests.edge.sources.cage import Caged, caged
from tests.protocol.sparkplug import contract
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
        names = ("thing", "online", "x", "Speed", "Temperature")
        columns = [one.column(name) for name in names]
        return [
            (thing, t, dict(zip(names[1:], values, strict=True)))
            for t, thing, *values in zip(one.times(), *columns, strict=True)
        ]

    def _measured(self) -> list[tuple[str, int, dict[str, Any]]]:
        return [row for row in self._rows() if row[2]["online"] is None]

    async def rows(self, count: int) -> list[tuple[str, int, dict[str, Any]]]:
        await self._one.until(lambda: len(self._measured()) >= count, "readings")
        return self._measured()

    async def presences(self, count: int) -> list[tuple[str, bool]]:
        def found() -> list[tuple[str, bool]]:
            words = ((thing, values["online"]) for thing, _, values in self._rows())
            return [(thing, is_there) for thing, is_there in words if is_there is not None]

        await self._one.until(lambda: len(found()) >= count, "presences")
        return found()

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


async def test_it_says_that_it_is_there_and_when_it_leaves(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    start = Agents(tmp_path, mosquitto.port)
    await contract.it_says_that_it_is_there_and_when_it_leaves(mosquitto.port, start)


async def test_it_takes_births_data_and_deaths(tmp_path: Path, mosquitto: Mosquitto) -> None:
    start = Agents(tmp_path, mosquitto.port)
    await contract.it_takes_births_data_and_deaths(mosquitto.port, start)


async def test_it_asks_nodes_for_their_births(tmp_path: Path, mosquitto: Mosquitto) -> None:
    start = Agents(tmp_path, mosquitto.port)
    await contract.it_asks_nodes_for_their_births(mosquitto.port, start)


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
