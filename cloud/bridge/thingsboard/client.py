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
from typing import Any, Final, Protocol

import mqtt5
import orjson

from edgewake.cloud.bridge.admission.allowance import MEASURED_BYTES, Account
from edgewake.cloud.bridge.admission.mapped import Mapper, Part
from edgewake.cloud.bridge.thingsboard import words
from edgewake.cloud.bridge.thingsboard.attributes import Attributes
from edgewake.cloud.bridge.web.door import Taker
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.downlink.down_message import Command
from edgewake.protocol.downlink.down_row import DownRow
from edgewake.protocol.downlink.downlink import ANSWERS, Answer, AnswerState, DownKind
from edgewake.protocol.errors import RemoteError
from edgewake.protocol.maps.device_tokens import Holder
from edgewake.protocol.maps.names import device_name
from edgewake.protocol.maps.topic import matches
from edgewake.protocol.mqtt import PACKET_IDS_MAX, Packet
from edgewake.protocol.ops.device import DeviceState
from edgewake.protocol.packets.mqtt311 import encode

ROOM_S: Final = 0.02
"""Seconds between two looks for room."""
RECENT_MAX: Final = 2 * words.INFLIGHT_MAX
"""Messages of a client by which one that it sends again is known."""
FILTERS_MAX: Final = 64
"""Subscriptions of a client: ThingsBoard's own has eight."""
THINGS_MAX: Final = 10_000
"""Devices behind one gateway; a reading of one more is taken, but no command reaches it."""
PENDING_MAX: Final = 100
"""Commands that wait for an answer of one client; the oldest is forgotten, and expires."""


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


@dataclass(slots=True)
class Pending:
    """A command that was sent."""

    row_id: str
    name: str
    device: str


class Server(Protocol):
    """What the door is for a client."""

    bridge: Taker
    clock: Clock
    prefix: str
    mapper: Mapper
    attributes: Attributes
    """What devices said of themselves since this bridge started."""

    def wake(self, devices: Iterable[str]) -> None:
        """These listen from now on."""

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
    recent: Recent = field(default_factory=OrderedDict)
    is_replaced: bool = False
    """Did it connect once more? What is still read of this connection will come again there."""
    things: dict[str, str] = field(default_factory=dict)
    """Devices behind it, at most THINGS_MAX: our name → its own."""
    _unacknowledged: deque[Taken] = field(default_factory=deque)
    """At most INFLIGHT_MAX."""
    _filters: dict[str, int] = field(default_factory=dict)
    """Filter → QoS."""
    _pending: OrderedDict[int, Pending] = field(default_factory=OrderedDict)
    _in_packets: dict[int, Pending] = field(default_factory=dict)
    """Commands that are done when their packet is acknowledged."""
    _numbers: int = 0

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
                done = self._in_packets.pop(packet.packet_id, None)
                if done is not None:
                    self._answer(done, AnswerState.DONE, "")
            case mqtt5.DisconnectPacket():
                return False
            case _:
                raise RemoteError(f"not expected: {type(packet).__name__}")
        return True

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
        await self._room()
        if self.is_replaced:
            raise RemoteError("it connected once more")
        taken = None
        if packet.packet_id is not None:
            taken = self._taken(packet.packet_id, packet)
            if taken is None:
                return
        settle = _nothing if taken is None else taken.settle
        word = words.read(packet.topic, packet.payload)
        match word:
            case words.Up():
                self._take(word, packet.payload, settle)
                return
            case words.Attributes():
                device = device_name(word.device, self.door.prefix) if word.device else ""
                known = self.door.attributes.known(device or self.holder.device)
                self._reply(words.attributes(word, known), packet)
            case words.Asked():
                self._reply(words.replied(word), packet)
            case words.Answered():
                self._on_answer(word)
            case words.Passed():
                self.door.note(self, word.why)
        settle()

    def _reply(self, what: words.Publish, asking: mqtt5.PublishPacket) -> None:
        """Answer at its expense: a question is short, and its answer may be long."""
        account = self.door.bridge.account(self.holder.device)
        account.pay(len(asking.payload) + len(what.payload), 0.0)
        self.publish(what)

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

    async def _room(self) -> None:
        bridge, clock = self.door.bridge, self.door.clock
        while (
            bridge.is_full
            or len(self._unacknowledged) >= words.INFLIGHT_MAX
            or bridge.account(self.holder.device).wait_s(clock.monotonic_s()) > 0
            or (self.holder.is_gateway and self._named.wait_s(clock.monotonic_s()) > 0)
        ):
            await clock.sleep(ROOM_S)

    @property
    def _named(self) -> Account:
        """What all devices behind it have together."""
        return self.door.bridge.account(self.holder.device, is_named=True)

    def _take(self, word: words.Up, payload: bytes, settle: Callable[[], None]) -> None:
        own = self.holder.device
        if word.is_gateways and not self.holder.is_gateway:
            self.door.note(self, f"its token is not a gateway's: {word.topic} is passed over")
            settle()
            return
        topic = word.topic if word.is_gateways else word.topic.replace("/me/", f"/{own}/")
        packet = mqtt5.PublishPacket(topic, payload)
        began_s = time.thread_time()
        parts = self.door.mapper.parts_of(
            packet, self.door.clock.now_ms(), device="" if word.is_gateways else own
        )
        self._remember(word, payload)
        if len(payload) >= MEASURED_BYTES:
            self.door.bridge.account(own).pay(len(payload), time.thread_time() - began_s)
        if word.is_gateways:
            self._named.pay_for(len(parts), len(payload))
        self.door.bridge.take(parts, own, settle, is_named=word.is_gateways)

    def _remember(self, word: words.Up, payload: bytes) -> None:
        """Devices behind it, and attributes that may be asked for."""
        body = words.object_of(payload)
        is_attributes = word.topic.endswith("/attributes")
        if not word.is_gateways:
            if is_attributes:
                self._keep(self.holder.device, "client", body)
            return
        by_name = body
        if word.topic.endswith("connect"):
            by_name = {str(body.get("device", "")): {}}
        came: list[str] = []
        for name, values in by_name.items():
            try:
                ours = device_name(name, self.door.prefix)
            except ValueError:
                continue
            if word.topic.endswith("/disconnect"):
                self.things.pop(ours, None)
                continue
            if ours not in self.things:
                if len(self.things) >= THINGS_MAX:
                    self.door.note(self, f"more than {THINGS_MAX} devices behind it")
                    break
                self.things[ours] = name
                came.append(ours)
            if self.things[ours] == name and is_attributes:
                self._keep(ours, "client", values if isinstance(values, dict) else {})
        self.door.wake(came)

    def _keep(self, device: str, kind: str, values: Mapping[str, Any]) -> None:
        left_out = self.door.attributes.keep(device, self.holder.device, kind, values)
        if left_out:
            self.door.note(self, f"{left_out} attributes of {device} more than are remembered")

    # To it

    def command(self, row: DownRow) -> bool:
        """Send a command, once; False where it does not listen."""
        asked = row.message
        assert isinstance(asked, Command)
        if any(one.row_id == asked.id for one in self._open()):
            return True
        own = self.things.get(row.device, "") if row.device != self.holder.device else ""
        self._numbers += 1
        number = self._numbers
        pending = Pending(asked.id, asked.name, row.device)
        found = words.command(asked, number, own)
        if asked.name != words.SET_ATTRIBUTES:
            if not self.publish(found):
                return False
            self._pending[number] = pending
            if len(self._pending) > PENDING_MAX:
                self._pending.popitem(last=False)
            return True
        packet_id = number % PACKET_IDS_MAX + 1
        if not self.publish(found, packet_id):
            return False
        self._keep(row.device, "shared", words.shared_of(asked))
        if self._qos(found.topic):
            self._in_packets[packet_id] = pending
        else:
            self._answer(pending, AnswerState.DONE, "")
        return True

    def _open(self) -> Iterable[Pending]:
        return (*self._pending.values(), *self._in_packets.values())

    def _on_answer(self, word: words.Answered) -> None:
        pending = self._pending.pop(word.number, None)
        if pending is None:
            self.door.note(self, f"an answer to number {word.number}, which nobody waits for")
            return
        self._answer(pending, AnswerState.DONE, word.output)

    def _answer(self, pending: Pending, state: AnswerState, output: str) -> None:
        answer = Answer(
            id=pending.row_id,
            kind=DownKind.COMMAND,
            state=state,
            name=pending.name,
            output=output or None,
        )
        body = {"t": self.door.clock.now_ms(), **answer.fields()}
        packet = mqtt5.PublishPacket(topics.up(pending.device, ANSWERS), orjson.dumps(body))
        self.door.bridge.take([Part(packet)], pending.device, _nothing, is_named=False)

    def _qos(self, topic: str) -> int | None:
        """The QoS with which it listens to a topic; None: not at all."""
        found = [qos for pattern, qos in self._filters.items() if matches(pattern, topic)]
        return max(found, default=None)

    def publish(self, what: words.Publish, packet_id: int | None = None) -> bool:
        """Send; False where it does not listen."""
        qos = self._qos(what.topic)
        if qos is None:
            return False
        if qos and packet_id is None:
            self._numbers += 1
            packet_id = self._numbers % PACKET_IDS_MAX + 1
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

    def presence(self, devices: Sequence[str], state: DeviceState) -> None:
        """Say that devices are there, or gone.

        Those behind it have their names from it: it pays for them.
        """
        own = self.holder.device
        for device in devices:
            packet = mqtt5.PublishPacket(topics.status(device), state.value.encode())
            is_named = device != own
            self.door.bridge.take([Part(packet)], own, _nothing, is_named=is_named)

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
