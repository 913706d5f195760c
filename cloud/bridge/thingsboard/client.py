"""One connection of a device or gateway of ThingsBoard.

A message of QoS 1 is acknowledged when Kafka has its readings, in the order of the messages. What
a client sends again after it has lost its connection to this bridge is taken once.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakValueDictionary

import mqtt5

from edgewake.cloud.bridge.admission.allowance import MEASURED_BYTES, Account
from edgewake.cloud.bridge.admission.mapped import Mapper, Part
from edgewake.cloud.bridge.thingsboard import words
from edgewake.cloud.bridge.thingsboard.firmware import Firmware, Image, chunk
from edgewake.cloud.bridge.thingsboard.memory import Memory
from edgewake.cloud.bridge.thingsboard.pending import Pending
from edgewake.cloud.bridge.web import provisioning
from edgewake.cloud.bridge.web.door import ASIDE_BYTES, Taker
from edgewake.protocol.clock import Clock
from edgewake.protocol.downlink.down_message import Command
from edgewake.protocol.downlink.down_row import DownRow
from edgewake.protocol.downlink.downlink import AnswerState
from edgewake.protocol.errors import RemoteError
from edgewake.protocol.maps.device_tokens import Holder
from edgewake.protocol.maps.names import device_name
from edgewake.protocol.maps.topic import matches
from edgewake.protocol.mqtt import PACKET_IDS_MAX, Packet
from edgewake.protocol.packets.mqtt311 import encode

ROOM_S: Final = 0.02
"""Seconds between two looks for room."""
RECENT_MAX: Final = 2 * words.INFLIGHT_MAX
"""Messages of a client by which one that it sends again is known."""
FILTERS_MAX: Final = 64
"""Subscriptions of a client: ThingsBoard's own has eight."""
THINGS_MAX: Final = 10_000
"""Devices behind one gateway; a reading of one more is taken, but no command reaches it."""
UNREAD_BYTES_MAX: Final = 64 * 1024
"""Bytes that wait for a client above which it is not listened to."""
OUT_BYTES_MAX: Final = 1 << 20
"""Bytes that wait for a client to read them; what else there is for it comes afterwards."""
DRAIN_S: Final = 30.0
"""Seconds for a client to take what is sent to it."""
WHOLE_S: Final = 300.0
"""Seconds for a client to take a whole file."""
CHUNK_BYTES_MAX: Final = 64 * 1024
"""Bytes of a piece of firmware that anybody may have; larger ones are sent to few at once."""
IN_PACKETS_MAX: Final = 1_000
"""Commands that a client was sent and has not acknowledged; more are sent once it has half of
them."""


def _nothing() -> None:
    """Nobody waits for it."""


@dataclass(slots=True, eq=False)
class Taken:
    """A message that was taken, and is acknowledged once it is settled."""

    packet_id: int
    fingerprint: int
    owner: Client
    """The connection that it came by last."""
    is_settled: bool = False

    def settle(self) -> None:
        """Kafka has it."""
        self.is_settled = True
        self.owner.acknowledge()


Recent = OrderedDict[int, Taken]


class Said(NamedTuple):
    """What a message with readings says."""

    parts: Sequence[Part]
    body: Mapping[str, Any]
    """Its object, where something of it is remembered."""
    busy_s: float
    """The processor time that it took to read."""


class Server(Protocol):
    """What the door is for a client."""

    bridge: Taker
    clock: Clock
    prefix: str
    mapper: Mapper
    memory: Memory
    firmware: Firmware
    readers: asyncio.Semaphore
    """Turns of messages that are read beside the loop, which serves others meanwhile."""
    reading: WeakValueDictionary[str, asyncio.Lock]
    """Devices of which a message has such a turn, or waits for one: each has one turn at most."""
    whole_files: asyncio.Semaphore
    """Turns of who is sent a whole file."""
    whole_files_of: set[str]
    """Devices whose tokens have such a turn, or wait for one."""
    provisioning: provisioning.Provisioning | None

    def waiting(self, device: str) -> Iterable[DownRow]:
        """What waits for a device's answer."""

    def standing(self, client: Client) -> Client | None:
        """The connection that a client has now; None: it has none."""

    def speaks(self, client: Client, device: str) -> None:
        """A client speaks for a device behind it."""

    def stops(self, client: Client, device: str) -> None:
        """And no more."""

    def wake(self, devices: Iterable[str]) -> None:
        """These listen from now on."""

    def has_own(self, device: str) -> bool:
        """Has a device a token or password of its own?"""

    def note(self, client: Client, why: str) -> None:
        """Something of a client has no effect."""


@dataclass(eq=False)
class Client:
    """What is known of it."""

    door: Server
    writer: asyncio.StreamWriter
    holder: Holder
    client_id: str
    is_old: bool
    """By MQTT 3.1.1, not 5?"""
    before: Recent
    """What it sent on its last connection."""
    network: str
    """Where it comes from, as all doors count it."""
    recent: Recent = field(default_factory=OrderedDict)
    is_replaced: bool = False
    """Did it connect once more? Nothing more of this connection is begun."""
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a message is read, or waits to be."""
    older: asyncio.Lock | None = None
    """The lock of the connection before this: what that one still reads is older."""
    things: dict[str, str] = field(default_factory=dict)
    """Devices behind it, at most THINGS_MAX: our name → its own."""
    _unacknowledged: deque[Taken] = field(default_factory=deque)
    """At most INFLIGHT_MAX."""
    _filters: dict[str, int] = field(default_factory=dict)
    """Filter → QoS."""
    _in_packets: dict[int, Pending] = field(default_factory=dict)
    """Commands that it was sent and has not acknowledged, at most IN_PACKETS_MAX."""
    _in_rows: set[str] = field(default_factory=set)
    """The ids of these commands."""
    _numbers: int = 0
    _is_behind: bool = False
    """Was there something for it that found no room?"""
    provisioned: bytes | None = None
    """The final answer to its question for a token, of a client that has none."""

    # From it

    async def on_packet(self, packet: Packet) -> bool:
        """Handle what it says; False: it leaves. Raises RemoteError."""
        match packet:
            case mqtt5.PublishPacket():
                await self._on_publish(packet)
            case mqtt5.SubscribePacket():
                self._on_subscribe(packet)
            case mqtt5.UnsubscribePacket():
                for pattern in packet.patterns:
                    self._filters.pop(pattern, None)
                codes = [mqtt5.UnsubAckReasonCode.SUCCESS for _ in packet.patterns]
                self._say(mqtt5.UnsubAckPacket(packet.packet_id, codes))
            case mqtt5.PingReqPacket():
                self._say(mqtt5.PingRespPacket())
            case mqtt5.PubAckPacket():
                while self.door.bridge.is_full:  # it may be an answer
                    await self.door.clock.sleep(ROOM_S)
                done = self._in_packets.pop(packet.packet_id, None)
                if done is not None:
                    self._in_rows.discard(done.row_id)
                    self._arrived(done)
            case mqtt5.DisconnectPacket():
                return False
            case _:
                raise RemoteError(f"not expected: {type(packet).__name__}")
        await self.drained(DRAIN_S)
        return True

    async def drained(self, within_s: float) -> None:
        """Wait until it has read most of what it was sent. Raises TimeoutError."""
        if self.writer.transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            async with asyncio.timeout(within_s):
                await self.writer.drain()
        if self._is_behind and len(self._in_packets) * 2 <= IN_PACKETS_MAX:
            self._is_behind = False
            self.door.wake((self.holder.device, *self.things))

    def _on_subscribe(self, packet: mqtt5.SubscribePacket) -> None:
        codes = []
        for one in packet.topic_filters:
            qos = min(int(one.max_qos), 1)
            self._filters[one.pattern] = qos
            codes.append(mqtt5.SubAckReasonCode(qos))
        if len(self._filters) > FILTERS_MAX:
            raise RemoteError(f"more than {FILTERS_MAX} subscriptions")
        self._say(mqtt5.SubAckPacket(packet.packet_id, codes))
        self.door.wake((self.holder.device, *self.things))

    async def _on_publish(self, packet: mqtt5.PublishPacket) -> None:
        if int(packet.qos) > 1:
            raise RemoteError("QoS 2: expected 0 or 1")
        async with self.reading:
            await self._turn()
            taken = None
            if packet.packet_id is not None:
                taken = self._taken(packet.packet_id, packet)
                if taken is None:
                    return
            settle = _nothing if taken is None else taken.settle
            word = words.read(packet.topic, packet.payload) if self.holder.device else None
            if isinstance(word, words.Up):
                await self._take(word, packet.payload, settle)
                return
        match word:
            case None:
                await self._on_provision(packet)
            case words.Attributes():
                self._reply(words.attributes(word, self._known(word.device)), packet)
            case words.Asked():
                self._reply(words.replied(word), packet)
            case words.Answered():
                self._on_answer(word)
            case words.Chunk():
                await self._on_chunk(word)
            case words.Passed():
                self.door.note(self, word.why)
        settle()

    def _reply(self, what: words.Publish, asking: mqtt5.PublishPacket) -> None:
        """Answer at its expense: a question is short, and its answer may be long."""
        account = self.door.bridge.account(self.holder.device)
        account.pay(len(asking.payload) + len(what.payload), 0.0)
        if asking.topic != words.standard(asking.topic):
            what = what._replace(topic=words.shortened(what.topic))
        self.publish(what)

    async def _on_provision(self, packet: mqtt5.PublishPacket) -> None:
        """Answer a client that has no token; what is final once."""
        if packet.topic != provisioning.REQUEST or self.door.provisioning is None:
            raise RemoteError("without a token: expected a request for one")
        answer = self.provisioned
        if answer is None:
            answer = await self.door.provisioning.answer(
                words.object_of(packet.payload), self.network
            )
            if answer != provisioning.AGAIN:
                self.provisioned = answer
        self.publish(words.Publish(provisioning.RESPONSE, answer))

    def _known(self, name: str) -> Mapping[str, Mapping[str, Any]]:
        """The attributes of itself, or of a device behind it: nobody is told of others."""
        kept = self.door.memory.of(self._behind(name) if name else self.holder.device)
        return {"client": kept.client, "shared": kept.shared}

    async def _on_chunk(self, word: words.Chunk) -> None:
        image = self.door.firmware.of(word.kind, self.door.memory.of(self.holder.device).shared)
        if image is None:
            self.door.note(
                self,
                f"asks for firmware: its shared attributes {word.kind}_title and {word.kind}"
                "_version name none in firmware_dir",
            )
            return
        if 0 < word.size <= CHUNK_BYTES_MAX:
            found = await asyncio.to_thread(chunk, image, word.size, word.piece)
            self._say_chunk(word, found)
            return
        await self._on_whole(word, image)

    async def _on_whole(self, word: words.Chunk, image: Image) -> None:
        """Send a whole file, at most one at a time to all who show one token."""
        own, of = self.holder.device, self.door.whole_files_of
        if own in of:
            self.door.note(self, "asks for a whole file while another is sent with its token")
            return
        of.add(own)
        try:
            try:
                async with asyncio.timeout(DRAIN_S):
                    await self.door.whole_files.acquire()
            except TimeoutError:
                self.door.note(self, f"asks for a whole file: no turn within {DRAIN_S:.0f} s")
                return
            try:
                found = await asyncio.to_thread(chunk, image, word.size, word.piece)
                self._say_chunk(word, found)
                await self.drained(WHOLE_S)
            finally:
                self.door.whole_files.release()
        finally:
            of.discard(own)

    def _say_chunk(self, word: words.Chunk, found: bytes) -> None:
        """Send it whatever the filters: ThingsBoard's own client asks for `v2/fw/response/+`."""
        self.door.bridge.account(self.holder.device).pay_for(0, len(found))
        qos = self._qos(word.topic) or 0
        packet_id = self._packet_id() if qos else None
        self._say(mqtt5.PublishPacket(word.topic, found, qos=mqtt5.QoS(qos), packet_id=packet_id))

    def _taken(self, packet_id: int, packet: mqtt5.PublishPacket) -> Taken | None:
        """Note a message of QoS 1; None where it came before."""
        fingerprint = hash((packet.topic, packet.payload))
        known = self.recent.get(packet_id) or self.before.get(packet_id)
        is_repeat = packet.duplicate and known is not None and known.fingerprint == fingerprint
        taken = known if is_repeat and known is not None else Taken(packet_id, fingerprint, self)
        taken.owner = self
        self.recent[packet_id] = taken
        self.recent.move_to_end(packet_id)
        if len(self.recent) > RECENT_MAX:
            self.recent.popitem(last=False)
        self._unacknowledged.append(taken)
        if is_repeat:
            self.acknowledge()
            return None
        return taken

    async def _turn(self) -> None:
        """Wait until its next message may be taken. Raises RemoteError where it never will be."""
        if self.older is not None:
            async with self.older:
                pass
            self.older = None
        await self._room()
        if self.is_replaced:
            raise RemoteError("it connected once more")

    async def _room(self) -> None:
        """Wait until its next message may be taken, or will never be."""
        while not self.is_replaced and (
            len(self._unacknowledged) >= words.INFLIGHT_MAX or self._has_to_wait()
        ):
            await self.door.clock.sleep(ROOM_S)

    def _has_to_wait(self) -> bool:
        """Is the bridge full, or the share of its device used up?"""
        bridge, now_s = self.door.bridge, self.door.clock.monotonic_s()
        return (
            bridge.is_full
            or bridge.account(self.holder.device).wait_s(now_s) > 0
            or (self.holder.is_gateway and self._named.wait_s(now_s) > 0)
        )

    @property
    def _named(self) -> Account:
        """What all devices behind it have together."""
        return self.door.bridge.account(self.holder.device, is_named=True)

    async def _take(self, word: words.Up, payload: bytes, settle: Callable[[], None]) -> None:
        own = self.holder.device
        if word.is_gateways and not self.holder.is_gateway:
            self.door.note(self, f"its token is not a gateway's: {word.topic} is passed over")
            settle()
            return
        now_ms = self.door.clock.now_ms()
        if len(payload) <= ASIDE_BYTES:
            said = self._said(word, payload, now_ms)
        else:
            said = await self._said_aside(word, payload, now_ms)
        # It may have connected once more meanwhile, and takes for done what is done here.
        standing = self.door.standing(self) if self.is_replaced else self
        (standing or self)._remember(word, said.body)
        if len(payload) >= MEASURED_BYTES:
            self.door.bridge.account(own).pay(len(payload), said.busy_s)
        if word.is_gateways:
            self._named.pay_for(len(said.parts), len(payload))
        self.door.bridge.take(said.parts, own, settle, is_named=word.is_gateways)

    async def _said_aside(self, word: words.Up, payload: bytes, now_ms: int) -> Said:
        """What a large message says, read at its turn, if there is room for it then.

        While it waited for its turn, other connections of its device may have used up its share.
        """
        while True:
            of_device = self.door.reading.setdefault(self.holder.device, asyncio.Lock())
            async with of_device, self.door.readers:
                if not self._has_to_wait():
                    return await asyncio.to_thread(self._said, word, payload, now_ms)
            while self._has_to_wait():
                await self.door.clock.sleep(ROOM_S)

    def _said(self, word: words.Up, payload: bytes, now_ms: int) -> Said:
        """What a message says. It may run in another thread, and reads only what never changes."""
        began_s = time.thread_time()
        own = self.holder.device
        topic = word.topic if word.is_gateways else word.topic.replace("/me/", f"/{own}/")
        packet = mqtt5.PublishPacket(topic, payload)
        device = "" if word.is_gateways else own
        parts = self.door.mapper.parts_of(packet, now_ms, device=device)
        is_remembered = word.is_gateways or word.topic == words.ATTRIBUTES
        body = words.object_of(payload) if is_remembered else {}
        return Said(parts, body, time.thread_time() - began_s)

    def _remember(self, word: words.Up, body: Mapping[str, Any]) -> None:
        """Devices behind it, and attributes that may be asked for."""
        is_attributes = word.topic.endswith("/attributes")
        if not word.is_gateways:
            if is_attributes:
                self._keep(self.holder.device, "client", body)
            return
        if self.is_replaced:  # and its next connection is gone, too: nobody speaks for them
            return
        by_name = body
        if word.topic.endswith("connect"):
            by_name = {str(body.get("device", "")): {}}
        why = ""
        for name, values in by_name.items():
            try:
                ours = device_name(name, self.door.prefix)
            except ValueError:
                continue
            if word.topic.endswith("/disconnect"):
                if self.things.pop(ours, None) is not None:
                    self.door.stops(self, ours)
                continue
            if ours not in self.things:
                why = self._why_not_behind(ours, name) or why
            if self.things.get(ours) == name and is_attributes:
                self._keep(ours, "client", values if isinstance(values, dict) else {})
        if why:
            self.door.note(self, why)

    def _why_not_behind(self, ours: str, name: str) -> str:
        """Why a device is not behind it; empty: it is, from now on."""
        if self.door.has_own(ours):
            return f"{ours} has a token or password of its own: it is not behind a gateway"
        if len(self.things) >= THINGS_MAX:
            return f"more than {THINGS_MAX} devices behind it"
        self.things[ours] = name
        self.door.speaks(self, ours)
        self.door.wake([ours])
        return ""

    def _keep(self, device: str, kind: str, values: Mapping[str, Any]) -> None:
        why = self.door.memory.keep(device, self.holder.device, kind, values)
        if why:
            self.door.note(self, f"{device}: {why}")

    # To it

    def command(self, row: DownRow) -> bool:
        """Send a command; False where it does not listen.

        One that it acknowledged, or was sent at QoS 0, is not sent again, whoever sent it.
        """
        asked = row.message
        assert isinstance(asked, Command)
        if asked.id in self.door.memory.of(row.device).told or asked.id in self._in_rows:
            return True
        own = self.things.get(row.device, "") if row.device != self.holder.device else ""
        pending = Pending.of(row, asked)
        if asked.name != words.SET_ATTRIBUTES:
            return self._send(words.command(asked, own), pending)
        if self.door.bridge.is_full:  # it may be answered at once
            self._is_behind = True
            return False
        try:
            values = self.door.firmware.described(words.shared_of(asked))
        except ValueError as error:
            self._answer(pending, AnswerState.REFUSED, "", str(error))
            return True
        if not self._send(words.shared(values, own), pending):
            return False
        self._keep(row.device, "shared", values)
        return True

    def _send(self, what: words.Publish, pending: Pending) -> bool:
        """Send what is a command to the device, by the long or the short name of its topic."""
        if self._qos(what.topic) is None:
            what = what._replace(topic=words.shortened(what.topic))
        qos = self._qos(what.topic)
        if qos and len(self._in_packets) >= IN_PACKETS_MAX:
            self._is_behind = True
            return False
        packet_id = self._packet_id() if qos else None
        if not self.publish(what, packet_id):
            return False
        if packet_id is None:
            self._arrived(pending)
        else:
            self._in_packets[packet_id] = pending
            self._in_rows.add(pending.row_id)
        return True

    def _arrived(self, pending: Pending) -> None:
        """The device has a command, as far as anybody will ever know."""
        if pending.name == words.SET_ATTRIBUTES:
            self._answer(pending, AnswerState.DONE, "")
            return
        waiting = (one.message.id for one in self.door.waiting(pending.device))
        self.door.memory.tell(pending.device, self.holder.device, pending.row_id, waiting)

    def _packet_id(self) -> int:
        """One that nothing waits under."""
        while True:
            self._numbers = self._numbers % PACKET_IDS_MAX + 1
            if self._numbers not in self._in_packets:
                return self._numbers

    def _behind(self, name: str) -> str:
        """Our name of a device behind it; empty: there is none."""
        try:
            ours = device_name(name, self.door.prefix)
        except ValueError:
            return ""
        return ours if self.things.get(ours) == name else ""

    def _on_answer(self, word: words.Answered) -> None:
        device = self._behind(word.device) if word.device else self.holder.device
        for row in self.door.waiting(device):
            asked = row.message
            if isinstance(asked, Command) and words.number_of(asked.id) == word.number:
                self._answer(Pending.of(row, asked), AnswerState.DONE, word.output)
                return
        self.door.note(self, f"an answer to number {word.number}, which nobody waits for")

    def _answer(self, pending: Pending, state: AnswerState, output: str, detail: str = "") -> None:
        part = pending.answered(state, output, detail, self.door.clock.now_ms())
        self.door.bridge.take([part], pending.device, _nothing, is_named=False)

    def _qos(self, topic: str) -> int | None:
        """The QoS with which it listens to a topic; None: not at all."""
        found = [qos for pattern, qos in self._filters.items() if matches(pattern, topic)]
        return max(found, default=None)

    def publish(self, what: words.Publish, packet_id: int | None = None) -> bool:
        """Send; False where it does not listen, or has too much to read already."""
        qos = self._qos(what.topic)
        if qos is None:
            return False
        if self.writer.transport.get_write_buffer_size() > OUT_BYTES_MAX:
            self._is_behind = True
            return False
        if qos and packet_id is None:
            packet_id = self._packet_id()
        self._say(
            mqtt5.PublishPacket(
                what.topic,
                what.payload,
                qos=mqtt5.QoS(qos),
                packet_id=packet_id if qos else None,
            )
        )
        return True

    def acknowledge(self) -> None:
        """Say what is settled, in order."""
        while self._unacknowledged and self._unacknowledged[0].is_settled:
            self._say(mqtt5.PubAckPacket(self._unacknowledged.popleft().packet_id))

    def _say(self, packet: Packet) -> None:
        if not self.writer.is_closing():
            self.writer.write(encode(packet) if self.is_old else packet.write())

    def greet(self, code: mqtt5.ConnAckReasonCode) -> None:
        """Answer its CONNECT."""
        self._say(
            mqtt5.ConnAckPacket(
                reason_code=code,
                max_qos=mqtt5.QoS.AT_LEAST_ONCE,
                subscription_id_available=False,
                shared_subscription_available=False,
            )
        )
