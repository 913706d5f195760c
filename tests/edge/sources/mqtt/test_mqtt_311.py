"""A local broker that knows MQTT 3.1.1 only: Mosquitto, behind a door that refuses MQTT 5 as such a
broker does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from paho.mqtt import publish

from edgewake.edge.sources.mqtt.mqtt_subscribe import MqttSubscribeConfig
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.packets.mqtt311 import NO_5
from tests.edge.sources.cage import Caged, caged
from tests.services import PATIENCE_S, Mosquitto

LEVEL_AT = 8
"""Where the protocol level stands in a CONNECT of up to 127 bytes."""


@dataclass
class Door:
    """What came by it."""

    port: int = 0
    levels: list[int] = field(default_factory=list)
    """Protocol levels that clients asked for."""
    holds_acks: bool = False
    """Is nothing passed on that a client says after its first words?"""


@asynccontextmanager
async def old_broker(broker: Mosquitto, *, is_silent: bool = False) -> AsyncIterator[Door]:
    """`is_silent`: it closes the connection without a word."""
    door = Door()

    async def copy(
        source: asyncio.StreamReader, sink: asyncio.StreamWriter, is_client: bool
    ) -> None:
        with suppress(OSError):
            while piece := await source.read(65_536):
                if not (is_client and door.holds_acks):
                    sink.write(piece)
                    await sink.drain()
        sink.close()

    async def serve(client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        hello = await client.read(65_536)
        door.levels.append(hello[LEVEL_AT])
        if hello[LEVEL_AT] > 4:
            back.write(b"" if is_silent else NO_5)
            back.close()
            return
        answers, onward = await asyncio.open_connection(broker.host, broker.port)
        onward.write(hello)
        await asyncio.gather(copy(client, onward, True), copy(answers, back, False))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    door.port = server.sockets[0].getsockname()[1]
    try:
        yield door
    finally:
        server.close()


def config(port: int, topic: str, **more: object) -> MqttSubscribeConfig:
    return MqttSubscribeConfig(
        type="mqtt_subscribe", stream="s", topic=topic, broker=BrokerConfig(port=port), **more
    )  # type: ignore[arg-type]


async def send(broker: Mosquitto, topic: str, *numbers: int, retain: bool = False) -> None:
    sent: list[tuple[str, str, int, bool]] = [(topic, f'{{"n": {n}}}', 1, retain) for n in numbers]
    await asyncio.to_thread(publish.multiple, sent, broker.host, broker.port)


async def comes_through(one: Caged, broker: Mosquitto, topic: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not one.intake.taken:
            await send(broker, topic, 0)
            await asyncio.sleep(0.05)


def values(one: Caged) -> list[object]:
    return [n for n in one.column("n") if n]


@pytest.mark.parametrize("is_silent", [False, True])
async def test_a_broker_without_mqtt_5_is_read_by_3_1_1_and_nothing_is_taken_twice_or_lost(
    tmp_path: Path, mosquitto: Mosquitto, is_silent: bool
) -> None:
    """Across a connection that is lost with its acknowledgements, and a restart of the agent."""
    topic, device = f"t311/{is_silent}", f"old-{is_silent}"
    async with old_broker(mosquitto, is_silent=is_silent) as door:
        to = config(door.port, topic)
        async with caged(tmp_path, to, device=device, answering=False) as one:
            await comes_through(one, mosquitto, topic)
            assert door.levels[:2] == [5, 4]
            door.holds_acks = True
            await send(mosquitto, topic, *range(1, 21))
            await one.until(lambda: len(values(one)) >= 1, "some came and are not acknowledged")
        door.holds_acks = False
        await send(mosquitto, topic, *range(21, 41))  # the broker keeps them for its session
        async with caged(tmp_path, to, device=device, answering=False) as one:
            await one.until(lambda: values(one) == [*range(1, 41)], "each once, in order")
            await send(mosquitto, topic, 41)
            await one.until(lambda: values(one) == [*range(1, 42)], "and those that follow")


@pytest.mark.parametrize(
    ("retained", "starts"), [("first", [1, 0]), ("skip", [0, 0]), ("all", [1, 1])]
)
async def test_what_such_a_broker_keeps_comes_as_often_as_is_asked(
    tmp_path: Path, mosquitto: Mosquitto, retained: str, starts: list[int]
) -> None:
    """By 3.1.1 a broker sends it at each SUBSCRIBE."""
    topic = f"t311r/{retained}"
    await send(mosquitto, topic, 1, retain=True)
    async with old_broker(mosquitto) as door:
        to = config(door.port, topic, retained=retained)
        for n, kept in enumerate(starts):
            async with caged(tmp_path / str(n), to, device=f"old-{retained}") as one:
                await comes_through(one, mosquitto, topic)
                await send(mosquitto, topic, 2)
                await one.until(lambda: 2 in one.column("n"), "a live one")
                assert one.column("n").count(1) == kept


async def test_a_source_that_is_to_speak_mqtt_5_says_why_it_does_not(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    async with (
        old_broker(mosquitto) as door,
        caged(tmp_path, config(door.port, "t311/x", protocol="5")) as one,
    ):
        await one.failed("knows no MQTT 5")
        assert set(door.levels) == {5}
