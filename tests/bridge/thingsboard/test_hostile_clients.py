"""Clients of ThingsBoard that ask much and read nothing, or come under ever new names."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import mqtt5
import orjson
import pytest

from edgewake.cloud.bridge.admission.mapped import Part
from edgewake.cloud.bridge.http_config import ThingsBoardConfig
from edgewake.cloud.bridge.mqtt.ack_ledger import Awaited
from edgewake.cloud.bridge.outbox import Outbox
from edgewake.cloud.bridge.thingsboard import client as clients
from edgewake.cloud.bridge.thingsboard import door as module
from edgewake.cloud.bridge.thingsboard import words
from edgewake.cloud.bridge.thingsboard.door import Door
from edgewake.cloud.bridge.thingsboard.firmware import Firmware
from edgewake.cloud.bridge.thingsboard.memory import Memory
from edgewake.protocol.clock import FakeClock, SystemClock
from edgewake.protocol.downlink.down_row import DownRow
from edgewake.protocol.downlink.downlink import DownKind
from edgewake.protocol.mqtt import PacketReader
from tests.bridge.web.test_turns import Shares
from tests.feeds import eventually
from tests.services import PATIENCE_S

ASKED = 1000
"""Questions in one piece of 64 KB; each answer has 14 KB."""
TOPIC = "v1/devices/me/attributes"


class Told(Shares):
    """Who pays for which topics."""

    def __init__(self) -> None:
        super().__init__(FakeClock())
        self.told: list[tuple[str, str, bool]] = []

    def take(
        self, parts: Sequence[Part], payer: str, on_settled: Callable[[], None], *, is_named: bool
    ) -> Awaited:
        self.told += [(payer, one.packet.topic, is_named) for one in parts]
        return super().take(parts, payer, on_settled, is_named=is_named)


class Client:
    """One connection, by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._packets = PacketReader()

    async def hears(self, kind: type[object]) -> None:
        """Wait for a packet."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                piece = await self.reader.read(65536)
                assert piece, "the connection ended"
                if any(isinstance(one, kind) for one in self._packets.feed(piece)):
                    return

    async def told(self, count: int) -> list[mqtt5.PublishPacket]:
        """Wait for so many messages."""
        found: list[mqtt5.PublishPacket] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < count:
                piece = await self.reader.read(65536)
                assert piece, "the connection ended"
                read = self._packets.feed(piece)
                found += [one for one in read if isinstance(one, mqtt5.PublishPacket)]
        return found

    async def ended(self) -> None:
        """Wait until the other end has closed."""
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionResetError):
                while await self.reader.read(65536):
                    pass

    async def is_heard(self) -> None:
        """Wait until all that it said was read."""
        self.writer.write(mqtt5.PingReqPacket().write())
        await self.hears(mqtt5.PingRespPacket)

    async def listens(self, pattern: str, qos: mqtt5.QoS = mqtt5.QoS.AT_MOST_ONCE) -> None:
        """Subscribe."""
        self.writer.write(
            mqtt5.SubscribePacket(1, [mqtt5.TopicFilter(pattern, max_qos=qos)]).write()
        )
        await self.hears(mqtt5.SubAckPacket)

    def says(self, topic: str, body: object) -> None:
        self.writer.write(mqtt5.PublishPacket(topic, orjson.dumps(body)).write())


class Here:
    """A door on a port."""

    def __init__(self, door: Door, bridge: Told, port: int) -> None:
        self.door, self.bridge, self._port = door, bridge, port

    @asynccontextmanager
    async def client(self, token: str, client_id: str = "c") -> AsyncIterator[Client]:
        """One that is let in."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            made = Client(reader, writer)
            writer.write(mqtt5.ConnectPacket(client_id, username=token).write())
            await made.hears(mqtt5.ConnAckPacket)
            yield made
        finally:
            writer.transport.abort()

    def waiting(self, device: str) -> int:
        """Bytes that wait for a client to read them."""
        found = self.door._present.of(device)
        return max(one.writer.transport.get_write_buffer_size() for one in found)


@asynccontextmanager
async def here(folder: Path, **more: Any) -> AsyncIterator[Here]:
    """`more`: of the configuration."""
    file = folder / "tokens"
    file.write_text("DEAF deaf\nQUIET quiet\nGATE gate gateway\n")
    file.chmod(0o600)
    bridge = Told()
    config = ThingsBoardConfig(port=1, tokens_file=file, **more)
    firmware = Firmware(config.firmware_dir)
    firmware.look()
    door = Door(config, bridge, Outbox(), Memory("one", "bridge-1"), firmware, SystemClock())
    server = await asyncio.start_server(door.serve, "127.0.0.1", 0)
    async with server:
        yield Here(door, bridge, server.sockets[0].getsockname()[1])


@pytest.mark.parametrize("bound", [clients.UNREAD_BYTES_MAX, 1 << 40], ids=["", "control"])
async def test_who_asks_and_reads_nothing_is_not_listened_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: int
) -> None:
    """A question has 50 bytes. Control: what is answered is kept, for as many as are asked."""
    monkeypatch.setattr(clients, "UNREAD_BYTES_MAX", bound)
    if bound == 1 << 40:
        monkeypatch.setattr(clients, "OUT_BYTES_MAX", bound)
    async with here(tmp_path) as site, site.client("DEAF") as deaf, site.client("QUIET") as quiet:
        deaf.writer.write(mqtt5.SubscribePacket(1, [mqtt5.TopicFilter(TOPIC + "/#")]).write())
        await deaf.hears(mqtt5.SubAckPacket)
        deaf.says(TOPIC, {"a": "x" * 14_000})
        for _ in range(ASKED):
            deaf.says(TOPIC + "/request/1", {"clientKeys": "a"})
        if bound == 1 << 40:
            await eventually(lambda: site.waiting("deaf") > 4 << 20, "all is kept")
        else:
            await eventually(lambda: site.waiting("deaf") > bound, "it waits")
            quiet.writer.write(mqtt5.PingReqPacket().write())
            await quiet.hears(mqtt5.PingRespPacket)
            assert site.waiting("deaf") < bound + 20_000
        account = site.bridge.account("deaf")
        assert account.bytes < site.bridge.account("quiet").bytes - 60_000, "it pays for answers"


async def test_a_gateway_pays_for_the_names_of_what_it_says_is_gone(tmp_path: Path) -> None:
    async with here(tmp_path) as site:
        async with site.client("GATE") as gate:
            for name in ("one", "two"):
                gate.says("v1/gateway/connect", {"device": name})
            gate.writer.write(mqtt5.PingReqPacket().write())
            await gate.hears(mqtt5.PingRespPacket)
        gone = {f"ew/v1/{name}/status" for name in ("gate", "one", "two")}
        await eventually(
            lambda: {topic for _, topic, _ in site.bridge.told[-3:]} == gone, "all are gone"
        )
        assert {payer for payer, _, _ in site.bridge.told} == {"gate"}
        named = {topic: is_named for _, topic, is_named in site.bridge.told[-3:]}
        assert named == {topic: topic != "ew/v1/gate/status" for topic in gone}


async def test_a_device_under_many_client_ids_pushes_out_nobody_else_s_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DEVICES_MAX", 4)
    async with here(tmp_path) as site:
        async with site.client("QUIET"):
            pass
        for n in range(30):
            async with site.client("DEAF", f"id-{n}"):
                pass
        await eventually(lambda: not site.door.clients, "all have left")
        assert list(site.door._recent["quiet"]) == ["c"]
        assert len(site.door._recent["deaf"]) == module.CLIENT_IDS_MAX


@pytest.mark.parametrize("aside", [clients.ASIDE_BYTES, 1 << 40], ids=["", "control"])
async def test_a_large_message_is_read_beside_the_loop_which_serves_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aside: int
) -> None:
    """The reader waits until another client was served. Control: the loop reads it itself."""
    monkeypatch.setattr(clients, "ASIDE_BYTES", aside)
    is_served = threading.Event()
    served_first: list[bool] = []
    async with here(tmp_path) as site, site.client("DEAF") as loud, site.client("QUIET") as quiet:
        parts_of = site.door.mapper.parts_of

        def slow(packet: mqtt5.PublishPacket, *args: Any, **more: Any) -> list[Part]:
            if len(packet.payload) > 4096:
                served_first.append(is_served.wait(1.0 if aside == 1 << 40 else PATIENCE_S))
            return parts_of(packet, *args, **more)

        monkeypatch.setattr(site.door.mapper, "parts_of", slow)
        loud.says("v1/devices/me/attributes", {f"a{n}": n for n in range(2_000)})
        loud.says("v1/devices/me/attributes", {"last": 1})
        await quiet.is_heard()
        is_served.set()
        await loud.is_heard()
        assert served_first == [aside != 1 << 40]
        assert len(site.bridge.told) >= 2
        attributes = site.door.memory.of("deaf").client
        assert len(attributes) == 256, "in the order in which they were sent"
        assert "last" not in attributes


async def test_the_short_topics_mean_the_long_ones_and_are_answered_by_short_ones(
    tmp_path: Path,
) -> None:
    async with here(tmp_path) as site, site.client("DEAF") as deaf:
        for pattern in ("v2/a", "v2/a/res/+", "v2/r/req/+", "v2/r/res/+"):
            await deaf.listens(pattern)
        deaf.says("v2/t", {"temperature": 21.5})
        deaf.says("v2/a", {"serial": "A-1"})
        deaf.says("v2/a/req/1", {"clientKeys": "serial"})
        deaf.says("v2/r/req/2", {"method": "getTime"})
        found = await deaf.told(2)
        assert [one.topic for one in found] == ["v2/a/res/1", "v2/r/res/2"]
        assert orjson.loads(found[0].payload) == {"client": {"serial": "A-1"}, "shared": {}}
        topics = [topic for _, topic, _ in site.bridge.told if "/up/" in topic]
        assert topics == ["ew/v1/deaf/up/thingsboard", "ew/v1/deaf/up/thingsboard_attributes"]
        for ident, name, args in (("c-1", "open", ("5",)), ("c-2", "set_attributes", ('{"a":1}',))):
            row = DownRow(
                device="deaf",
                kind=DownKind.COMMAND,
                payload=orjson.dumps({"id": ident, "name": name, "args": args}).decode(),
                asked_at=0,
                expires_at=1 << 50,
                asked_by="test",
            )
            assert site.door.reach(row)
        commands = await deaf.told(2)
        number = words.number_of("c-1")
        assert [one.topic for one in commands] == [f"v2/r/req/{number}", "v2/a"]
