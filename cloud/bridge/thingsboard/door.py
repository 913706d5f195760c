"""The bridge's door for devices and gateways of ThingsBoard: an MQTT server with its topics.

No broker can do it, for all devices write the same topics: who a client is says its access token.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final
from weakref import WeakValueDictionary

import mqtt5

from edgewake.cloud.bridge.admission.mapped import Mapper, Part
from edgewake.cloud.bridge.http_config import ThingsBoardConfig
from edgewake.cloud.bridge.outbox import Outbox
from edgewake.cloud.bridge.thingsboard.client import DRAIN_S, Client, Recent
from edgewake.cloud.bridge.thingsboard.firmware import Firmware
from edgewake.cloud.bridge.thingsboard.memory import Memory
from edgewake.cloud.bridge.thingsboard.present import Present
from edgewake.cloud.bridge.web import provisioning
from edgewake.cloud.bridge.web.device_passwords import DevicePasswords
from edgewake.cloud.bridge.web.door import READERS_MAX, Taker
from edgewake.cloud.client_share import Bound, Clients, Held
from edgewake.cloud.log_pace import LogPace
from edgewake.cloud.web import http_part, tls
from edgewake.cloud.web.gone import notice_gone
from edgewake.protocol import topics
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
DEVICES_MAX: Final = 10_000
"""Devices whose last messages are remembered; the longest quiet is forgotten."""
CLIENT_IDS_MAX: Final = 8
"""Client ids of a device under which they are: it may connect under as many as it likes."""
STRANDED_S: Final = 90.0
"""Seconds after a start for devices that were here before to come again: ThingsBoard's own clients
wait up to 120 between two attempts, and most of them 1."""
WHOLE_FILES_MAX: Final = 4
"""Clients that are sent a whole file at once: their bytes are in memory."""
PROVISION_S: Final = 60.0
"""Seconds that a client without a token may stay: it asks for one, and comes again with it."""
PRESET: Final = "thingsboard"


def _nothing() -> None:
    """Nobody waits for it."""


class Door:
    """All clients of one bridge."""

    def __init__(
        self,
        config: ThingsBoardConfig,
        bridge: Taker,
        outbox: Outbox,
        memory: Memory,
        firmware: Firmware,
        clock: Clock,
    ) -> None:
        """Raises ConfigError."""
        self.bridge, self.clock, self.prefix = bridge, clock, config.prefix
        self.mapper = Mapper(compile_presets([PRESET], needs_names=True), config.prefix)
        self._outbox = outbox
        self.memory = memory
        self.firmware = firmware
        self.readers = asyncio.Semaphore(READERS_MAX)
        self.reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.whole_files = asyncio.Semaphore(WHOLE_FILES_MAX)
        self.whole_files_of: set[str] = set()
        self.provisioning = provisioning.opened(config.enrol_url, config.enrol_ca_file)
        file, passwords = config.tokens_file, config.password_file
        self.tokens = None if file is None else DeviceTokens(file)
        self._passwords = None if passwords is None else DevicePasswords(passwords)
        self._known: list[object] = []
        """What the two files said when it was looked last who is known no more."""
        self._clients = Clients()
        self._held = Held(Bound("connections", config.connections_max, config.address_share))
        self._paces: defaultdict[str, LogPace] = defaultdict(LogPace)
        """The pace of lines that clients cause, by event."""
        self._present: Present[Client] = Present()
        self._recent: OrderedDict[str, OrderedDict[str, Recent]] = OrderedDict()
        """By device and client id."""
        outbox.ways.append(self.reach)

    # Connections

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its first byte to its last."""
        client = self._network(writer)
        why = self._held.take(client)
        if why is not None:
            self._say_of(client, logging.WARNING, "thingsboard.refused", f"refused: {why}")
            writer.close()
            return
        try:
            await self._serve(reader, writer)
        except (OSError, TimeoutError, RemoteError) as error:
            if isinstance(error, TimeoutError):  # it may never read what waits for it
                writer.transport.abort()
            why = str(error) or type(error).__name__
            self._say_of(client, logging.INFO, "thingsboard.lost", f"a client is gone: {why}")
        finally:
            self._held.give_back(client)
            writer.close()
            if writer.transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(DRAIN_S, writer.transport.abort)

    def _network(self, writer: asyncio.StreamWriter) -> str:
        """Who a connection comes from, as all doors count it."""
        peer = writer.get_extra_info("peername")
        return self._clients.of(str(peer[0]) if peer else None)

    def _say_of(self, client: str, level: int, event: str, text: str) -> None:
        """Log what a client caused: whoever connects can cause it again and again."""
        left_out = self._paces[event].left_out(client, self.clock.monotonic_s())
        if left_out is None:
            return
        more = f" ({left_out} more of these were not logged)" if left_out else ""
        log.log(level, "%s: %s%s", client, text, more, extra={"event": event, "client": client})

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
        stays_s = None if client.holder.device else PROVISION_S
        self._join(client)
        try:
            async with asyncio.timeout(stays_s):
                await self._follow(client, reader, packets, rest, silent_s)
        finally:
            self._leave(client)

    def _client(
        self, hello: mqtt5.ConnectPacket, writer: asyncio.StreamWriter, *, is_old: bool
    ) -> Client | None:
        holder = self._holder(hello)
        asks = holder is None and hello.username == provisioning.USER
        shown = Holder("") if holder is None else holder
        other = self._same(shown.device, hello.client_id)
        if other is not None:
            # Its connection of before is not lost yet, as far as anybody here knows.
            before = other.recent
        else:
            of_device = self._recent.get(shown.device, OrderedDict())
            before = of_device.pop(hello.client_id, OrderedDict())
        network = self._network(writer)
        client = Client(self, writer, shown, hello.client_id, is_old, before, network)
        if holder is None and not (asks and self.provisioning is not None):
            client.greet(mqtt5.ConnAckReasonCode.BAD_USER_NAME_OR_PASSWORD)
            why = "enrol_url is not set" if asks else "its token is nobody's"
            text = f"a client is refused: {why}"
            self._say_of(network, logging.WARNING, "thingsboard.denied", text)
            return None
        client.greet(mqtt5.ConnAckReasonCode.SUCCESS)
        return client

    def _same(self, device: str, client_id: str) -> Client | None:
        """The connection of before of a client."""
        found = self._present.of(device) if device else ()
        return next(
            (one for one in found if one.holder.device == device and one.client_id == client_id),
            None,
        )

    def _holder(self, hello: mqtt5.ConnectPacket) -> Holder | None:
        """The holder of the token that is its user name or its password."""
        password = (hello.password or b"").decode("utf-8", "replace")
        name = hello.username or ""
        if self.tokens is None and self._passwords is None:
            if name == provisioning.USER and self.provisioning is not None:
                return None
            with suppress(ValueError):
                return Holder(device_name(name or hello.client_id), is_gateway=True)
            return None
        found = None
        if self.tokens is not None:
            found = self.tokens.holder_of(name) or self.tokens.holder_of(password)
        if found is None and self._passwords is not None:
            user, _, word = name.partition(":")
            found = self._passwords.holder_of(user, word or password)
        return found

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
            async with asyncio.timeout(silent_s):
                piece = await reader.read(READ_BYTES)
            if not piece:
                return
            rest = list(packets.feed(piece))

    def _join(self, client: Client) -> None:
        device = client.holder.device
        if not device:
            return
        other = self._same(device, client.client_id)
        self._present.speaks(client, device)
        self.memory.arrived(device, device)
        self._say([device], DeviceState.ONLINE, device)
        if other is not None:
            client.older = other.reading
            other.is_replaced = True
            other.before = OrderedDict()  # else each keeps all connections before it
            self._gone(other)
            other.writer.transport.abort()

    def _leave(self, client: Client) -> None:
        client.before = OrderedDict()  # else each keeps all connections before it
        device = client.holder.device
        if client.is_replaced or not device:
            return
        of_device = self._recent.setdefault(device, OrderedDict())
        of_device[client.client_id] = client.recent
        if len(of_device) > CLIENT_IDS_MAX:
            of_device.popitem(last=False)
        self._recent.move_to_end(device)
        if len(self._recent) > DEVICES_MAX:
            self._recent.popitem(last=False)
        self._gone(client)

    def _gone(self, client: Client) -> None:
        """Devices that no other connection speaks for, here or at another bridge, are offline."""
        gone = [one for one in self._present.leave(client) if self.memory.left(one)]
        self._say(gone, DeviceState.OFFLINE, client.holder.device)

    @property
    def clients(self) -> list[Client]:
        """All that are connected."""
        return [*self._present]

    def say_stranded(self) -> None:
        """Devices that were here before this bridge died, and did not come again, are offline."""
        gone = [one for one in self.memory.here() if not self._present.of(one)]
        for device in gone:
            self.memory.left(device)
            self._say([device], DeviceState.OFFLINE, self.memory.of(device).token)

    def _say(self, devices: Iterable[str], state: DeviceState, token: str) -> None:
        """Say that devices are there, or gone.

        Those behind a gateway have their names from it: it pays for them.
        """
        for device in devices:
            packet = mqtt5.PublishPacket(topics.status(device), state.value.encode())
            self.bridge.take([Part(packet)], token, _nothing, is_named=device != token)

    def standing(self, client: Client) -> Client | None:
        """The connection that a client has now; None: it has none."""
        return self._same(client.holder.device, client.client_id)

    def speaks(self, client: Client, device: str) -> None:
        """A client speaks for a device behind it."""
        self._present.speaks(client, device)
        self.memory.arrived(device, client.holder.device)

    def stops(self, client: Client, device: str) -> None:
        """And no more."""
        self._present.stops(client, device)
        if not self._present.of(device):
            self.memory.left(device)

    def has_own(self, device: str) -> bool:
        """Has a device a token or password of its own? Then no gateway has its commands."""
        if self.tokens is not None and device in self.tokens.devices:
            return True
        return self._passwords is not None and self._passwords.knows(Holder(device))

    # Commands

    def reach(self, row: DownRow) -> bool:
        """Send what waits for a device that is connected here; False: it is not."""
        if row.kind is not DownKind.COMMAND:
            return False
        return any(client.command(row) for client in self._present.of(row.device))

    def waiting(self, device: str) -> Iterable[DownRow]:
        """What waits for a device's answer."""
        return self._outbox.waiting(device)

    def wake(self, devices: Iterable[str]) -> None:
        """These listen from now on."""
        for device in devices:
            self._outbox.on_connected(device)

    async def look(self) -> None:
        """Read the files again that changed; who has no token or password any more is closed."""
        known: list[object] = []
        for file in (self.tokens, self._passwords):
            if file is not None:
                await asyncio.to_thread(file.look)
                known.append(file.seen)
        # Not what `look` says: who shows a wrong password has the file read, too.
        if known != self._known:
            self._known = known
            self._close_revoked()

    def _close_revoked(self) -> None:
        tokens = frozenset() if self.tokens is None else self.tokens.holders
        passwords = self._passwords
        for client in self._present:
            for device in [one for one in client.things if self.has_own(one)]:
                del client.things[device]
                self.stops(client, device)
            holder = client.holder
            has_password = passwords is not None and passwords.knows(holder)
            if holder in tokens or (has_password and not holder.is_gateway):
                continue
            log.warning(
                "%s: its token was taken back",
                holder.device,
                extra={"event": "thingsboard.revoked", "device": holder.device},
            )
            client.writer.transport.abort()

    def note(self, client: Client, why: str) -> None:
        """Something of a client has no effect."""
        self._say_of(client.holder.device, logging.INFO, "thingsboard.passed", why)


async def serve(
    config: ThingsBoardConfig,
    bridge: Taker,
    outbox: Outbox,
    memory: Memory,
    firmware: Firmware,
    clock: Clock,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Take readings until it is cancelled. Raises ConfigError, OSError."""
    assert config.port is not None, "it is wanted"
    door = Door(config, bridge, outbox, memory, firmware, clock)
    await door.look()
    encrypted = None
    if config.cert_file is not None and config.key_file is not None:
        encrypted = tls.serving(config.cert_file, config.key_file, "cert_file", "key_file")
    within_s = None if encrypted is None else HELLO_S
    listener = http_part.bind(config.host, config.port)
    notice_gone([listener])
    server = await asyncio.start_server(
        door.serve, sock=listener, ssl=encrypted, ssl_handshake_timeout=within_s
    )
    log.info(
        "takes what ThingsBoard's devices send at %s:%s",
        config.host,
        config.port,
        extra={"event": "bridge.thingsboard"},
    )
    on_ready()
    try:
        began_s, is_said = clock.monotonic_s(), False
        while True:
            await clock.sleep(LOOK_S)
            await door.look()
            if not is_said and clock.monotonic_s() - began_s > STRANDED_S:
                is_said = True
                door.say_stranded()
    finally:
        server.close()
