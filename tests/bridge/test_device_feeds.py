"""Each device follows what its own right names, on a real broker, bridge and access server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import mqtt5
import orjson
import pytest
import tomli_w

from edgewake.protocol import topics
from edgewake.protocol.downlink.feed import FeedChunk, decode
from tests.access.world import key_file
from tests.bridge.running import Device, World
from tests.feeds import Feed, unique
from tests.services import PATIENCE_S, free_ports, part

BRIDGE_KEY, WHOLE_KEY = "bridge-key-00000001", "whole-key-000000001"


class Follower(Device):
    """A device that follows streams by hand, one question at a time."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name, "none")
        self.chunks: asyncio.Queue[FeedChunk] = asyncio.Queue()

    def data_received(self, data: bytes) -> None:
        for packet in self._reader.feed(data):
            match packet:
                case mqtt5.ConnAckPacket():
                    transport = cast(asyncio.Transport, self._transport)
                    own = mqtt5.TopicFilter(f"ew/v1/{self.name}/down/feed")
                    transport.write(mqtt5.SubscribePacket(1, [own]).write())
                case mqtt5.SubAckPacket():
                    self._subscribed = True
                case mqtt5.PublishPacket():
                    self.chunks.put_nowait(decode(FeedChunk, packet.payload))

    async def first_events(self, *streams: str, **more: str) -> FeedChunk:
        """The first chunk that has some: one with a cursor alone may come before."""
        chunk = await self.follow(*streams, **more)
        while not chunk.events:
            assert not chunk.error, chunk.error
            chunk = await self.follow(*streams, **more | {"after": chunk.cursor})
        return chunk

    async def follow(self, *streams: str, **more: str) -> FeedChunk:
        """The answer to a question."""
        await self.connected()
        ask = {"feed": "echo", "streams": streams, "begin": "earliest"} | more
        self.publish(orjson.dumps(ask), topic=topics.feed(self.name), packet_id=0)
        async with asyncio.timeout(PATIENCE_S):
            return await self.chunks.get()


@dataclass
class Streams:
    """Two streams, and nobody's name."""

    cars: str
    city: str
    absent: str
    send: Callable[[str], None]
    """A reading of a car."""


@asynccontextmanager
async def fed(here: World, folder: Path, *, key: str, **keys: Any) -> AsyncIterator[Streams]:
    """A bridge that shows an access server this key; `keys` are more of its table [feed]."""
    cars, city = Feed(here.config), Feed(here.config)

    def send(car: str) -> None:
        cars.send(car, fields={"speed": [50.0], "secret": ["x"]})

    for device in ("car-1", "car-2"):
        send(device)
    city.send("town", fields={"rain": [1.0]})
    readers, bridge = folder / "readers.keys", folder / "bridge.key"
    readers.write_text(f"bridge-1 bridge {BRIDGE_KEY}\nwhole everything {WHOLE_KEY}\n")
    bridge.write_text(key)
    readers.chmod(0o600)
    own = {"streams": [cars.name], "devices": ["$device"], "fields": ["speed"]}
    rights = {
        "key_file": str(readers),
        "roles": {
            "bridge": {"grants": [{"actions": ["feed"], "devices": ["car-*", "bus-*"]}]},
            "car": {"grants": [own]},
            "bus": {"grants": [{"streams": [city.name]}]},
        },
        "devices": [
            {"devices": ["car-*"], "role": "car"},
            {"devices": ["bus-*", "stranger"], "role": "bus"},
        ],
    }
    (port,) = free_ports(1)
    file = folder / "access.toml"
    kafka = {"bootstrap": here.node.bootstrap}
    common = {"cursor_key_file": str(key_file(folder)), "kafka": kafka, "rights": rights}
    file.write_text(tomli_w.dumps({"name": "access-feeds", "port": port, **common}))
    feed = {
        "access_urls": [f"http://127.0.0.1:{port}"],
        "streams": ["*"],
        "key_file": str(bridge),
        **keys,
    }
    table = ", ".join(f"{name} = {orjson.dumps(value).decode()}" for name, value in feed.items())
    with part("access", file, folder / "access.log") as access:
        access.wait_for('"part.ready"')
        here.bridge("b-own-feeds", feed=f"{{ {table} }}")
        yield Streams(cars.name, city.name, unique("absent"), send)
    cars.close()
    city.close()


def shown(chunk: FeedChunk) -> list[dict[str, Any]]:
    """What a device can use of a chunk."""
    kept = ("device", "speed", "secret", "rain")
    return [
        {name: value for name, value in event.items() if name in kept} for event in chunk.events
    ]


def without_near(error: str) -> str:
    """A refusal without a name that is like the one asked for: names here are random."""
    return error.partition("; did you mean")[0]


async def test_a_device_follows_what_its_own_right_names(here: World, tmp_path: Path) -> None:
    async with fed(here, tmp_path, key=BRIDGE_KEY) as streams:
        car, other, bus, stranger = (
            Follower(here, name) for name in ("car-1", "car-2", "bus-1", "stranger")
        )
        first = await car.first_events(streams.cars)
        assert shown(first) == [{"device": "car-1", "speed": 50.0}]
        assert shown(await other.first_events(streams.cars)) == [{"device": "car-2", "speed": 50.0}]
        assert shown(await bus.first_events(streams.city)) == [{"device": "town", "rain": 1.0}]

        absent = await car.follow(streams.absent)
        unknown = without_near(absent.error)
        assert streams.absent in unknown
        for device, name in (
            (car, streams.city),
            (bus, streams.cars),
            (stranger, streams.cars),
            (stranger, streams.city),  # a rule names it, and its bridge may not ask for it
        ):
            refused = await device.follow(name)
            words = without_near(refused.error).replace(name, streams.absent)
            told = words, refused.retry_s, refused.events
            assert told == (unknown, absent.retry_s, ()), (device.name, name)
        assert (await car.follow(streams.cars, streams.city)).events == ()

        # What is hidden is nothing to a filter, and another's cursor says where, and no more.
        filtered = await car.first_events(streams.cars, where="secret IS NULL")
        assert shown(filtered) == [{"device": "car-1", "speed": 50.0}]
        for car_name in ("car-1", "car-2"):
            streams.send(car_name)
        found = shown(await other.first_events(streams.cars, after=first.cursor))
        assert {event["device"] for event in found} == {"car-2"}


@pytest.mark.long
async def test_all_follow_alike_only_where_the_bridge_says_so(here: World, tmp_path: Path) -> None:
    async with fed(here, tmp_path, key=WHOLE_KEY, own_rights=False) as streams:
        found = shown(await Follower(here, "car-1").first_events(streams.cars))
        assert sorted(event["device"] for event in found) == ["car-1", "car-2"]
        assert {event["secret"] for event in found} == {"x"}
        assert '"feed.alike"' in here.parts[-1].output()


@pytest.mark.long
async def test_a_key_that_may_not_ask_for_devices_feeds_none(here: World, tmp_path: Path) -> None:
    async with fed(here, tmp_path, key=WHOLE_KEY) as streams:
        chunk = await Follower(here, "car-1").follow(streams.cars)
        assert (chunk.events, "key is refused" in chunk.error) == ((), True)
        log = here.parts[-1].output()
        assert "whole may not ask for devices: expected a role with the action feed" in log
        assert '"feed.alike"' not in log
