"""The bridge's door for devices and gateways of ThingsBoard: an MQTT server with its topics.

No broker can do it, for all devices write the same topics: who a client is says its access token.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import mqtt5

from edgewake.cloud.bridge.admission.mapped import Mapper
from edgewake.cloud.bridge.http_config import ThingsBoardConfig
from edgewake.cloud.bridge.outbox import Outbox
from edgewake.cloud.bridge.thingsboard.attributes import Attributes
from edgewake.cloud.bridge.thingsboard.client import Client, Recent
from edgewake.cloud.bridge.web.door import Taker
from edgewake.cloud.client_share import Bound
from edgewake.protocol.clock import Clock
from edgewake.protocol.downlink.down_row import DownRow
from edgewake.protocol.downlink.downlink import DownKind
from edgewake.protocol.errors import RemoteError
from edgewake.protocol.maps.compiling import compile_presets
from edgewake.protocol.maps.device_tokens import DeviceTokens, Holder
from edgewake.protocol.maps.map_file import LOOK_S
from edgewake.protocol.maps.names import device_name
from edgewake.protocol.mqtt import Packet, PacketReader, Unreadable
from edgewake.protocol.ops.device import DeviceState
from edgewake.protocol.packets.mqtt311 import OldPacketReader, level_of

log = logging.getLogger("edgewake.bridge.thingsboard")

HELLO_S: Final = 10.0
"""Seconds for a client's CONNECT."""
READ_BYTES: Final = 64 * 1024
KEEPALIVE_S: Final = 300
"""Seconds of silence that are forgiven a client which names no keepalive."""
DRAIN_S: Final = 30.0
"""Seconds for a client to take what is sent to it."""
UNREAD_BYTES_MAX: Final = 64 * 1024
"""Bytes that wait for a client above which it is not listened to."""
DEVICES_MAX: Final = 10_000
"""Devices whose last messages are remembered; the longest quiet is forgotten."""
CLIENT_IDS_MAX: Final = 8
"""Client ids of a device under which they are: it may connect under as many as it likes."""
PRESET: Final = "thingsboard"


class Door:
    """All clients of one bridge."""

    def __init__(
        self,
        config: ThingsBoardConfig,
        bridge: Taker,
        outbox: Outbox,
        tokens: DeviceTokens | None,
        clock: Clock,
    ) -> None:
        self.bridge, self.clock, self.prefix = bridge, clock, config.prefix
        self.mapper = Mapper(compile_presets([PRESET], needs_names=True), config.prefix)
        self._outbox = outbox
        self._tokens = tokens
        self._bound = Bound("connections", config.connections_max, config.address_share)
        self._held: dict[str, int] = {}
        self._clients: dict[str, Client] = {}
        """By device: its newest connection."""
        self._recent: OrderedDict[str, OrderedDict[str, Recent]] = OrderedDict()
        """By device and client id."""
        self.attributes = Attributes()
        outbox.reach = self.reach

    # Connections

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its first byte to its last."""
        address = str((writer.get_extra_info("peername") or ("",))[0])
        held = self._held.get(address, 0)
        total = sum(self._held.values())
        if (why := self._bound.refusal(total=total, held=held)) is not None:
            log.warning("refused: %s", why, extra={"event": "thingsboard.refused"})
            writer.close()
            return
        self._held[address] = held + 1
        try:
            await self._serve(reader, writer)
        except (OSError, TimeoutError, RemoteError) as error:
            log.info(
                "a client is gone: %s",
                str(error) or type(error).__name__,
                extra={"event": "thingsboard.lost"},
            )
        finally:
            self._held[address] -= 1
            if not self._held[address]:
                del self._held[address]
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(HELLO_S):
            beginning = b""
            while (level := level_of(beginning)) is None:
                piece = await reader.read(READ_BYTES)
                if not piece:
                    return
                beginning += piece
            is_old = level < 5
            packets = OldPacketReader() if is_old else PacketReader()
            found = list(packets.feed(beginning))
            while not found:
                piece = await reader.read(READ_BYTES)
                if not piece:
                    return
                found = list(packets.feed(piece))
        hello, *rest = found
        if not isinstance(hello, mqtt5.ConnectPacket):
            raise RemoteError("expected CONNECT first")
        client = self._client(hello, writer, is_old=is_old)
        if client is None:
            await writer.drain()
            return
        silent_s = 1.5 * (hello.keep_alive or KEEPALIVE_S)
        self._join(client)
        try:
            await self._follow(client, reader, packets, rest, silent_s)
        finally:
            self._leave(client)

    def _client(
        self, hello: mqtt5.ConnectPacket, writer: asyncio.StreamWriter, *, is_old: bool
    ) -> Client | None:
        holder = self._holder(hello)
        shown = Holder("") if holder is None else holder
        other = self._clients.get(shown.device)
        if other is not None and other.client_id == hello.client_id:
            # Its connection of before is not lost yet, as far as anybody here knows.
            before = other.recent
        else:
            of_device = self._recent.get(shown.device, OrderedDict())
            before = of_device.pop(hello.client_id, OrderedDict())
        client = Client(self, writer, shown, hello.client_id, is_old, before)
        if holder is None:
            client.greet(mqtt5.ConnAckReasonCode.BAD_USER_NAME_OR_PASSWORD)
            log.warning(
                "a client is refused: its token stands in no line of tokens_file",
                extra={"event": "thingsboard.denied"},
            )
            return None
        client.greet(mqtt5.ConnAckReasonCode.SUCCESS)
        return client

    def _holder(self, hello: mqtt5.ConnectPacket) -> Holder | None:
        """The holder of the token that is its user name or its password."""
        password = (hello.password or b"").decode("utf-8", "replace")
        if self._tokens is not None:
            name = hello.username or ""
            return self._tokens.holder_of(name) or self._tokens.holder_of(password)
        with suppress(ValueError):
            return Holder(device_name(hello.username or hello.client_id), is_gateway=True)
        return None

    async def _follow(
        self,
        client: Client,
        reader: asyncio.StreamReader,
        packets: PacketReader,
        rest: list[Packet | Unreadable],
        silent_s: float,
    ) -> None:
        while True:
            for packet in rest:
                if isinstance(packet, Unreadable) or not await client.on_packet(packet):
                    return
                if client.writer.transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
                    async with asyncio.timeout(DRAIN_S):
                        await client.writer.drain()
            async with asyncio.timeout(DRAIN_S):
                await client.writer.drain()
            async with asyncio.timeout(silent_s):
                piece = await reader.read(READ_BYTES)
            if not piece:
                return
            rest = list(packets.feed(piece))

    def _join(self, client: Client) -> None:
        device = client.holder.device
        other = self._clients.get(device)
        if other is not None and other.client_id == client.client_id:
            other.is_replaced = True
            other.writer.transport.abort()
        self._clients[device] = client
        client.presence([device], DeviceState.ONLINE)

    def _leave(self, client: Client) -> None:
        device = client.holder.device
        if client.is_replaced:
            return
        of_device = self._recent.setdefault(device, OrderedDict())
        of_device[client.client_id] = client.recent
        if len(of_device) > CLIENT_IDS_MAX:
            of_device.popitem(last=False)
        self._recent.move_to_end(device)
        if len(self._recent) > DEVICES_MAX:
            self._recent.popitem(last=False)
        if self._clients.get(device) is client:
            del self._clients[device]
            client.presence([device, *client.things], DeviceState.OFFLINE)

    # Commands

    def reach(self, row: DownRow) -> bool:
        """Send what waits for a device that is connected here; False: it is not."""
        if row.kind is not DownKind.COMMAND:
            return False
        client = self._clients.get(row.device) or next(
            (one for one in self._clients.values() if row.device in one.things), None
        )
        return client is not None and client.command(row)

    def wake(self, devices: Iterable[str]) -> None:
        """These listen from now on."""
        for device in devices:
            self._outbox.on_connected(device)

    def close_revoked(self, holders: frozenset[Holder]) -> None:
        """Close the connections of those who hold no token any more."""
        for client in [*self._clients.values()]:
            if client.holder not in holders:
                log.warning(
                    "%s: its token was taken back",
                    client.holder.device,
                    extra={"event": "thingsboard.revoked", "device": client.holder.device},
                )
                client.writer.transport.abort()

    def note(self, client: Client, why: str) -> None:
        """Something of a client has no effect."""
        log.info(
            "%s: %s",
            client.holder.device,
            why,
            extra={"event": "thingsboard.passed", "device": client.holder.device},
        )


async def serve(
    config: ThingsBoardConfig,
    bridge: Taker,
    outbox: Outbox,
    clock: Clock,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Take readings until it is cancelled. Raises ConfigError, OSError."""
    assert config.port is not None, "it is wanted"
    tokens = None if config.tokens_file is None else DeviceTokens(config.tokens_file)
    door = Door(config, bridge, outbox, tokens, clock)
    server = await asyncio.start_server(door.serve, config.host, config.port)
    log.info(
        "takes what ThingsBoard's devices send at %s:%s",
        config.host,
        config.port,
        extra={"event": "bridge.thingsboard"},
    )
    on_ready()
    try:
        while True:
            await clock.sleep(LOOK_S)
            if tokens is not None and await asyncio.to_thread(tokens.look):
                door.close_revoked(tokens.holders)
    finally:
        server.close()
