"""The door for ThingsBoard's clients by itself: real connections, and a bridge that notes what it
is given.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import mqtt5
import orjson

from edgewake.cloud.bridge.admission.allowance import Account, Allowance, DeviceConfig
from edgewake.cloud.bridge.admission.mapped import Part
from edgewake.cloud.bridge.http_config import ThingsBoardConfig
from edgewake.cloud.bridge.mqtt.ack_ledger import Awaited
from edgewake.cloud.bridge.outbox import Outbox
from edgewake.cloud.bridge.thingsboard.client import OUT_BYTES_MAX
from edgewake.cloud.bridge.thingsboard.door import Door
from edgewake.cloud.bridge.thingsboard.firmware import Firmware
from edgewake.cloud.bridge.thingsboard.memory import Memory
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.mqtt import PacketReader
from tests.services import PATIENCE_S

ANSWERS = "v1/devices/me/attributes/response/"


class Notes:
    """A bridge with room for everything."""

    is_full = False

    def __init__(self) -> None:
        self._allowance = Allowance(DeviceConfig())
        self.states: list[tuple[str, str]] = []
        """Device and what was said of its presence."""

    def account(self, payer: str, *, is_named: bool = False) -> Account:
        return self._allowance.account(payer, 0)

    def wait_s(self, device: str) -> float:
        return 0.0

    def take(
        self, parts: Sequence[Part], payer: str, on_settled: Callable[[], None], *, is_named: bool
    ) -> Awaited:
        for one in parts:
            packet = one.packet
            assert isinstance(packet, mqtt5.PublishPacket)
            if packet.topic.endswith("/status"):
                self.states.append((payer, packet.payload.decode()))
        on_settled()
        return Awaited(0, on_settled)


@dataclass
class Device:
    """A client, connected."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    packets: PacketReader = field(default_factory=PacketReader)
    left: list[object] = field(default_factory=list)

    def send(self, *packets: mqtt5.PublishPacket | mqtt5.SubscribePacket) -> None:
        self.writer.write(b"".join(one.write() for one in packets))

    async def next(self) -> object:
        while not self.left:
            piece = await self.reader.read(65_536)
            assert piece, "the connection ended"
            self.left += self.packets.feed(piece)
        return self.left.pop(0)


@dataclass
class Here:
    """A door that is open."""

    door: Door
    notes: Notes
    memory: Memory
    port: int
    devices: list[Device] = field(default_factory=list)

    async def device(self, name: str, client_id: str) -> Device:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        found = Device(reader, writer)
        self.devices.append(found)
        writer.write(mqtt5.ConnectPacket(client_id, username=name).write())
        assert isinstance(await found.next(), mqtt5.ConnAckPacket)
        return found

    async def said(self, *states: tuple[str, str]) -> None:
        """Wait until that was said of presence, and nothing else."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.notes.states) < len(states):
                await asyncio.sleep(0.01)
        assert self.notes.states == [*states]


@asynccontextmanager
async def opened() -> AsyncIterator[Here]:
    notes, memory = Notes(), Memory("one", "bridge-1")
    door = Door(ThingsBoardConfig(), notes, Outbox(), memory, Firmware(None), SystemClock())
    server = await asyncio.start_server(door.serve, "127.0.0.1", 0)
    here = Here(door, notes, memory, server.sockets[0].getsockname()[1])
    try:
        yield here
    finally:
        for device in here.devices:
            device.writer.close()
            with suppress(OSError):
                await device.writer.wait_closed()
        async with asyncio.timeout(PATIENCE_S):
            while door.clients:
                await asyncio.sleep(0.01)
        server.close()


async def test_who_asks_and_does_not_read_costs_no_memory_and_hears_all_once_he_reads() -> None:
    count, large = 400, "x" * 60_000
    async with opened() as here, asyncio.timeout(PATIENCE_S):
        here.memory.keep("boiler", "boiler", "shared", {"large": large})
        device = await here.device("boiler", "a")
        device.send(mqtt5.SubscribePacket(1, [mqtt5.TopicFilter(f"{ANSWERS}+")]))
        assert isinstance(await device.next(), mqtt5.SubAckPacket)
        question = b'{"sharedKeys":"large"}'
        topic = "v1/devices/me/attributes/request/"
        device.send(*(mqtt5.PublishPacket(f"{topic}{n}", question) for n in range(count)))
        (client,) = here.door.clients

        def waiting() -> int:
            return client.writer.transport.get_write_buffer_size()

        while waiting() < 65_536:
            await asyncio.sleep(0.01)
        assert waiting() < OUT_BYTES_MAX < count * len(large) / 10, "the rest is not written yet"
        for n in range(count):
            found = await device.next()
            assert isinstance(found, mqtt5.PublishPacket)
            assert found.topic == f"{ANSWERS}{n}"
            assert orjson.loads(found.payload)["shared"] == {"large": large}
            assert waiting() < OUT_BYTES_MAX


async def test_nobody_is_told_the_attributes_of_a_device_that_he_does_not_speak_for() -> None:
    async with opened() as here, asyncio.timeout(PATIENCE_S):
        here.memory.keep("oven", "oven", "client", {"serial": "secret"})
        gateway = await here.device("hall", "a")
        answers = "v1/gateway/attributes/response"
        gateway.send(mqtt5.SubscribePacket(1, [mqtt5.TopicFilter(answers)]))
        assert isinstance(await gateway.next(), mqtt5.SubAckPacket)

        async def told(name: str) -> object:
            asks = {"id": 1, "device": name, "client": True, "key": "serial"}
            topic = "v1/gateway/attributes/request"
            gateway.send(mqtt5.PublishPacket(topic, orjson.dumps(asks)))
            found = await gateway.next()
            assert isinstance(found, mqtt5.PublishPacket)
            return orjson.loads(found.payload)["value"]

        assert await told("oven") is None
        assert await told("///") is None
        serial = orjson.dumps({"oven 2": {"serial": "A-1"}})
        gateway.send(mqtt5.PublishPacket("v1/gateway/attributes", serial))
        assert await told("oven 2") == "A-1"


async def test_a_device_is_offline_when_the_last_of_its_connections_is_gone() -> None:
    online, offline = ("boiler", "online"), ("boiler", "offline")
    async with opened() as here:
        first = await here.device("boiler", "a")
        second = await here.device("boiler", "b")
        await here.said(online, online)
        second.writer.close()
        # The same client once more: its place is taken, and the device was there all the time.
        again = await here.device("boiler", "a")
        await here.said(online, online, online)
        assert await first.reader.read() == b""
        again.writer.close()
        await here.said(online, online, online, offline)


async def test_devices_that_do_not_come_again_after_the_bridge_died_are_offline() -> None:
    async with opened() as here:
        before = Memory("of a process that died", "bridge-1")
        before.write = lambda row: here.memory.follow(*row)
        for name in ("boiler", "oven"):
            before.arrived(name, name)
        device = await here.device("oven", "a")
        here.door.say_stranded()
        await here.said(("oven", "online"), ("boiler", "offline"))
        assert here.memory.here() == ["oven"]
        assert device.left == []
