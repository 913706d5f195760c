"""Takes messages of a local MQTT broker, whose topics carry values: `home/{room}/temperature`.

A message of QoS 1 is acknowledged to the broker only when its readings are durable, and the broker
keeps what comes while the agent is away (`session_s`). One that it sends again, because our
acknowledgement did not reach it, is not taken again, also across a crash of the agent. While the
queue is full nothing is acknowledged, and the broker holds the rest back (receive maximum).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol

import mqtt5
import orjson

from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.sources.address import BUFFER_BYTES, connected
from edgewake.edge.sources.config import SourceConfig, SourceContext, check_streams
from edgewake.edge.sources.items import DOCUMENT_BYTES_MAX, checked, found
from edgewake.edge.sources.mqtt.recent_packets import PACKETS_MAX, RecentPackets
from edgewake.protocol import topics
from edgewake.protocol.broker import (
    CLIENT_ID_CHARS_MAX,
    BrokerConfig,
    client_id_of,
    password_of,
    tls_of,
)
from edgewake.protocol.errors import Rejected, RejectReason, Unavailable
from edgewake.protocol.frames.field_names import put_over
from edgewake.protocol.json_text import is_meant_as_json, parse
from edgewake.protocol.maps.topic import Crossing, TopicTemplate
from edgewake.protocol.mqtt import PACKET_BYTES_MAX, Packet, PacketReader, Unreadable
from edgewake.protocol.names import is_field
from edgewake.protocol.packets.mqtt311 import NO_5, OldPacketReader, encode
from edgewake.protocol.plain import Check, Length, key

if TYPE_CHECKING:
    from edgewake.edge.sources.mqtt.mqtt_maps import SourceMaps

log = logging.getLogger("edgewake.sources.mqtt")

ANSWER_S: Final = 10.0
"""Seconds for CONNACK and SUBACK."""
NO_NUMBERS: Final = frozenset({"nan", "-nan", "inf", "-inf", "+inf", "infinity", "-infinity"})
"""Texts that programs write for a missing number; they are null, as in JSON."""
KEEPALIVE_S: Final = 20
"""Seconds within which the broker is to hear of us; after 1.5 times as long without a word of its
own it is taken for dead."""


def _template(text: str) -> str:
    TopicTemplate.parse(text)
    return text


def _field(name: str) -> str:
    if not is_field(name):
        raise ValueError("expected a name of a field")
    return name


FIRST_NUMBERED_ID: Final = 3
"""Packet id of the first subscription that has a number; before it are the others and what is given
up."""
LOOK_S: Final = 2.0
"""Seconds between two looks at a map file."""
RETAINED: Final = "retained"
"""Field of readings that the broker had kept."""
HANDLING: Final = {
    "first": mqtt5.RetainHandling.SEND_IF_SUBSCRIPTION_NOT_EXISTS,
    "skip": mqtt5.RetainHandling.SEND_NEVER,
    "all": mqtt5.RetainHandling.SEND_ALWAYS,
}
"""MQTT 5, section 3.8.3.1."""
OWN: Final = topics.ROOT + "/"


class MqttSubscribeConfig(SourceConfig):
    """Messages of a local MQTT broker."""

    type: Literal["mqtt_subscribe"]
    topic: Annotated[str, Check(_template)] | None = None
    """What is subscribed to, where there are no maps: levels as they are, `+`, `#` at the end, or
    `{field}`, which becomes a field of each reading; `{field...}` at the end has all levels that
    follow. Edgewake's own topics (`ew/v1/…`) are passed over unless the template begins with
    them."""
    maps: Path | None = None
    """Map file that makes readings of the messages (docs/maps.md), in place of `topic`; read again
    when it changes. Readings that it gives to another stream are left to the source of that stream;
    the device that it gives is the field `thing`."""
    presets: tuple[str, ...] = ()
    """Maps that come with Edgewake, by name, where there is no file."""
    maps_text: str | None = None
    """What a map file says, in place of its path: settings that the cloud sets bring their maps
    along so."""
    streams: Literal["own", "all"] = "own"
    """Which readings of the maps are taken. own: those of `stream`; all: every stream that the maps
    give, each as if it had a source of its own, up to 32 (`ManyStreams`). Streams of other sources
    here are left to these; what a map gives without a stream is of `stream`, and so are losses."""
    field: Annotated[str, Check(_field)] = "value"
    """Field of a message that is one value (`21.5`, `true`, text) and no JSON object."""
    client_id: Annotated[str, Length(1, CLIENT_ID_CHARS_MAX)] | None = None
    """What it calls itself; none: `edgewake-DEVICE-STREAM`, with a digest in the place of what is
    beyond 64 characters. Two clients of one name push each other
    out, so a second source of a stream from the same broker needs one of its own."""
    session_s: int = key(default=86_400, ge=0, le=4_294_967_294)
    """Seconds for which the broker keeps messages of QoS 1 while the agent is away."""
    retained: Literal["first", "skip", "all"] = "first"
    """What is taken of the messages that the broker keeps for who comes later. first: they come
    once, as long as it keeps our session (`session_s`); skip: never; all: at every connection. Each
    such reading has the field `retained`, true."""
    protocol: Literal["auto", "5", "3.1.1"] = "auto"
    """Version of MQTT. auto: 5, and 3.1.1 where the broker does not know it. By 3.1.1 a broker
    keeps a session for as long as it likes, whatever `session_s` says, unless that is 0."""
    broker: BrokerConfig = BrokerConfig()

    def __post_init__(self) -> None:
        given = [self.topic, self.maps, self.presets or None, self.maps_text]
        if sum(one is not None for one in given) != 1:
            raise ValueError("expected one of `topic`, `maps`, `maps_text` and `presets`")
        if self.has_streams and self.topic is not None:
            raise ValueError('streams = "all": expected `maps`, `maps_text` or `presets` with it')
        check_streams(self)
        wanted = None if self.has_streams else self.stream
        if self.maps_text is not None:
            from edgewake.edge.sources.mqtt.mqtt_maps import check_text

            check_text(self.maps_text, wanted)
        if self.presets:
            from edgewake.edge.sources.mqtt.mqtt_maps import check_presets

            check_presets(self.presets, wanted)

    @property
    def has_streams(self) -> bool:
        return self.streams == "all"

    def source(self, context: SourceContext) -> MqttSubscribe:
        return MqttSubscribe(self, context)

    def owns(self) -> str:
        name = f"edgewake-DEVICE-{self.stream}" if self.client_id is None else self.client_id
        return (
            f"as the client {name} of {self.broker.host}:{self.broker.port}: expected a "
            "`client_id` of its own"
        )


class MqttSubscribe:
    """Subscribes, maps each message, and queues its readings."""

    policy = Policy.BLOCK

    def __init__(self, config: MqttSubscribeConfig, context: SourceContext) -> None:
        self._config = config
        self._clock = context.clock
        self._maps: SourceMaps | None = None
        if config.topic is None:
            from edgewake.edge.sources.mqtt.mqtt_maps import SourceMaps

            self._maps = SourceMaps(
                config.maps,
                config.presets,
                stream=config.stream,
                zone=config.time.zone,
                text=config.maps_text,
                others=context.streams,
                has_devices=config.has_devices,
                has_streams=config.has_streams,
            )
        self._template = TopicTemplate.parse(config.topic or "#")
        self._client_id = config.client_id or client_id_of(context.device, config.stream)
        what = config.topic or f"maps of {config.stream}"
        self._name = f"mqtt_subscribe:{config.broker.host}:{config.broker.port}:{what}"
        self._recent = RecentPackets.decode(context.position(self._name))
        self._has_retained = False
        """Has a 3.1.1 broker kept our session, for which it sent them before?"""
        self._former: Sequence[str] = ()
        """Topics that maps of before wanted."""
        self._tls = tls_of(config.broker)
        self._is_old = config.protocol == "3.1.1"
        """Does the broker know MQTT 3.1.1 only?"""

    async def run(self, intake: Intake) -> None:
        try:
            await self._run(intake)
        except NoMqtt5Error:
            if self._config.protocol == "5" or self._is_old:
                raise
            log.info(
                "the broker %s:%d knows no MQTT 5: going on by 3.1.1",
                self._config.broker.host,
                self._config.broker.port,
                extra={"event": "mqtt.old_broker"},
            )
            self._is_old = True
            await self._run(intake)

    async def _run(self, intake: Intake) -> None:
        broker = self._config.broker
        async with connected(broker.host, broker.port, tls=self._tls) as (reader, writer):
            link = Link(reader, writer, is_old=self._is_old)
            kept = await link.open(self._client_id, self._config, self._filters(), self._former)
            self._has_retained = kept and self._is_old
            waiting: asyncio.Queue[int] = asyncio.Queue()
            acknowledging = asyncio.create_task(self._acknowledge(intake, link, waiting))
            following = asyncio.create_task(self._follow_maps())
            for task in (acknowledging, following):
                task.add_done_callback(lambda _: writer.transport.abort())
            try:
                while True:
                    publishes = await link.publishes()
                    await self._take(intake, publishes)
                    for packet in publishes:
                        if packet.packet_id is not None:
                            waiting.put_nowait(packet.packet_id)
            finally:
                acknowledging.cancel()
                following.cancel()
                await asyncio.wait({acknowledging, following})

    @property
    def _are_left_out(self) -> bool:
        """Are retained messages passed over? By 3.1.1 they come at each SUBSCRIBE."""
        return self._config.retained == "skip" or (
            self._config.retained == "first" and self._has_retained
        )

    def _filters(self) -> Sequence[str]:
        return [self._template.filter] if self._maps is None else self._maps.filters

    async def _follow_maps(self) -> None:
        """Until other topics are wanted than those that were subscribed to."""
        if self._maps is None:
            await asyncio.Event().wait()
            return
        before = self._maps.filters
        while self._maps.filters == before:
            await asyncio.sleep(LOOK_S)
            await asyncio.to_thread(self._maps.look)
        self._former = [one for one in before if one not in self._maps.filters]

    async def _acknowledge(self, intake: Intake, link: Link, waiting: asyncio.Queue[int]) -> None:
        """What is durable, in order."""
        while True:
            ids = [await waiting.get()]
            while not waiting.empty():
                ids.append(waiting.get_nowait())
            await intake.durable()
            for packet_id in ids:
                link.send(mqtt5.PubAckPacket(packet_id))
            await link.drained()

    async def _take(
        self, intake: Intake, packets: Sequence[mqtt5.PublishPacket | Unreadable]
    ) -> None:
        sent_once: list[Reading] = []
        """Readings of QoS 0, which are not delivered again."""
        readings: list[Reading] = []
        recent, remembered = self._recent.copy(), False
        for packet in packets:
            # Acknowledged as any other: the broker would send it again for ever.
            if isinstance(packet, Unreadable):
                intake.refuse(
                    RejectReason.OVERSIZE
                    if packet.size > PACKET_BYTES_MAX
                    else RejectReason.ENCODING,
                    packet.why,
                )
                continue
            if packet.packet_id is not None:
                if packet.duplicate and recent.is_repeat(
                    packet.packet_id, packet.topic, packet.payload
                ):
                    continue
                recent.add(packet.packet_id, packet.topic, packet.payload)
                remembered = True
            found = await self._readings(intake, packet)
            readings += found
            if packet.packet_id is None:
                sent_once += found
        taken = intake.taken
        try:
            await intake.put(
                readings, position=(self._name, recent.encode()) if remembered else None
            )
        except asyncio.CancelledError:
            if remembered and intake.taken == taken:  # the others come again
                intake.put_last(sent_once)
            raise
        self._recent = (
            recent  # not before: what could not be passed on is taken when it is sent again
        )

    async def _readings(self, intake: Intake, packet: mqtt5.PublishPacket) -> Sequence[Reading]:
        payload = bytes(packet.payload)
        if self._maps is not None and self._maps.is_repeat(packet.topic, packet.subscription_ids):
            return []
        if not payload:
            return []  # how retained messages are cleared
        # The uplink's broker: its frames would feed themselves.
        own = self._config.topic or ""
        if packet.topic.startswith(OWN) and not own.startswith(OWN):
            intake.remark(f"messages of {OWN}… passed over")
            return []
        if packet.retain and self._are_left_out:
            return []  # a broker that does not know how they are left out
        try:
            items = (
                self._bodies(intake, packet)
                if self._maps is None
                else self._maps.bodies(intake, packet, self._clock.now_ms())
            )
        except Rejected as error:
            intake.refuse(error.reason, error.detail)
            return []
        named: dict[str, Any] = {}
        if self._maps is None:
            named = dict(self._template.fields(packet.topic))
        if packet.retain:
            named[RETAINED] = True
        for item in items:
            if isinstance(item, dict):
                put_over(item, named)
        return await checked(intake, items)

    def _bodies(self, intake: Intake, packet: mqtt5.PublishPacket) -> Sequence[Any]:
        """Raises Rejected."""
        payload, kind, properties = (
            bytes(packet.payload),
            packet.content_type,
            packet.user_properties,
        )
        if kind or properties:
            # A small device pays for what it uses.
            from edgewake.protocol.maps import contents
            from edgewake.protocol.maps.decoding import BadItem

            if contents.is_pack(kind, properties):
                found: list[Any] = []
                for one in contents.items(payload, kind, properties, self._clock.now_ms()):
                    if isinstance(one, BadItem):
                        intake.refuse(one.why.reason, one.why.detail)
                    elif isinstance(one, contents.WithUnits):
                        intake.note_units(one.units)
                        found.append(one.body)
                    else:
                        found.append(one)
                return found
        return bodies(payload, self._config.field)


def bodies(payload: bytes, field: str) -> list[Any]:
    """The objects in a payload: JSON objects, or one value under `field`. Raises Rejected. Pure."""
    if len(payload) > DOCUMENT_BYTES_MAX:
        raise Rejected(
            RejectReason.OVERSIZE, f"{len(payload)} bytes: expected at most {DOCUMENT_BYTES_MAX}"
        )
    try:
        items = [parse(item) if isinstance(item, bytes) else item for item in found(payload)]
    except (Rejected, orjson.JSONDecodeError) as error:
        if is_meant_as_json(payload):
            raise Rejected(
                RejectReason.JSON, f"begins as JSON but is not valid JSON: {error}"
            ) from error
        items = [_text(payload)]
    return [
        {field: item} if item is None or isinstance(item, int | float | str | bool) else item
        for item in items
    ]


def _text(payload: bytes) -> str | None:
    """Raises Rejected."""
    try:
        text = payload.decode()
    except UnicodeDecodeError as error:
        raise Rejected(RejectReason.ENCODING, "expected JSON or UTF-8") from error
    return None if text.strip().lower() in NO_NUMBERS else text


class Session(Protocol):
    """What a connection is made by."""

    @property
    def broker(self) -> BrokerConfig:
        """The broker's address and credentials."""

    @property
    def session_s(self) -> int:
        """Seconds for which the broker keeps the session."""

    @property
    def retained(self) -> Literal["first", "skip", "all"]:
        """What is asked for of retained messages."""


class NoMqtt5Error(Unavailable):
    """The broker knows no MQTT 5, or seems not to."""


class Link:
    """An MQTT connection that acknowledges when it is told to."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        is_old: bool = False,
    ) -> None:
        """`is_old`: by MQTT 3.1.1, not 5."""
        self._reader = reader
        self._writer = writer
        self._is_old = is_old
        reader_of = OldPacketReader if is_old else PacketReader
        self._packets = reader_of(keep_unreadable=True)
        self._is_answered = False
        self._early: list[Packet | Unreadable] = []
        """What came in one piece with the CONNACK: the messages that the broker kept."""
        self._sent_s = 0.0

    def send(self, packet: Packet) -> None:
        """Send."""
        self._sent_s = asyncio.get_running_loop().time()
        self._writer.write(encode(packet) if self._is_old else packet.write())

    def _ping_when_due(self) -> None:
        """Say a word after half a keepalive without one of ours, until the end of the connection.

        The broker ends it after 1.5 keepalives (MQTT 5, section 3.1.2.10), also while it sends us
        messages of QoS 0 without end, which nobody answers, and while we take none for want of
        room.
        """
        if self._writer.is_closing():
            return
        loop = asyncio.get_running_loop()
        wait_s = self._sent_s + KEEPALIVE_S / 2 - loop.time()
        if wait_s <= 0:
            self.send(mqtt5.PingReqPacket())
            wait_s = KEEPALIVE_S / 2
        loop.call_later(wait_s, self._ping_when_due)

    async def drained(self) -> None:
        """Wait until the socket takes more. Raises Unavailable."""
        try:
            async with asyncio.timeout(KEEPALIVE_S):
                await self._writer.drain()
        except TimeoutError as error:
            raise Unavailable("the broker takes nothing") from error

    async def open(
        self,
        client_id: str,
        config: Session,
        filters: Sequence[str],
        former: Sequence[str] = (),
        will: mqtt5.Will | None = None,
    ) -> bool:
        """Say CONNECT and SUBSCRIBE, and UNSUBSCRIBE of `former`; had the broker our session?

        Raises Unavailable, NoMqtt5Error.
        """
        broker, session_s = config.broker, config.session_s
        self.send(
            mqtt5.ConnectPacket(
                client_id,
                username=broker.username,
                password=password_of(broker),
                clean_start=session_s == 0,
                will=will,
                keep_alive=KEEPALIVE_S,
                session_expiry_interval=session_s,
                receive_max=PACKETS_MAX,
            )
        )
        self._ping_when_due()
        try:
            async with asyncio.timeout(ANSWER_S):
                connack = await self._connack()
                if connack.reason_code != mqtt5.ConnAckReasonCode.SUCCESS:
                    raise Unavailable(f"the broker refused: {connack.reason_code.name.lower()}")
                if former:
                    self.send(mqtt5.UnsubscribePacket(2, list(former)))
                may_number = connack.subscription_id_available and not self._is_old
                numbered = Crossing(filters).numbered if may_number else {}
                plain = [one for one in filters if one not in numbered]
                self._subscribe(1, plain, config)
                for at, (topic, number) in enumerate(numbered.items()):
                    self._subscribe(FIRST_NUMBERED_ID + at, [topic], config, number)
        except TimeoutError as error:
            raise Unavailable(f"no answer of the broker within {ANSWER_S:.0f} s") from error
        return connack.session_present

    def _subscribe(
        self,
        packet_id: int,
        topics_wanted: Sequence[str],
        config: Session,
        number: int | None = None,
    ) -> None:
        wanted = [
            mqtt5.TopicFilter(
                topic,
                max_qos=mqtt5.QoS.AT_LEAST_ONCE,
                retain_as_published=False,  # the flag says then that the broker had kept it
                retain_handling=HANDLING[config.retained],
            )
            for topic in topics_wanted
        ]
        self.send(mqtt5.SubscribePacket(packet_id, wanted, subscription_id=number))

    async def _connack(self) -> mqtt5.ConnAckPacket:
        first, *self._early = await self._some()
        self._is_answered = True
        if not isinstance(first, mqtt5.ConnAckPacket):
            raise Unavailable("no MQTT 5 broker")
        return first

    async def publishes(self) -> list[mqtt5.PublishPacket | Unreadable]:
        """The next messages, and what was none. Raises Unavailable, RemoteError."""
        found: list[mqtt5.PublishPacket | Unreadable] = []
        for packet in await self._some():
            if isinstance(packet, mqtt5.PublishPacket | Unreadable):
                found.append(packet)
            elif isinstance(packet, mqtt5.SubAckPacket) and any(
                int(code) >= 0x80 for code in packet.reason_codes
            ):
                raise Unavailable(
                    f"the broker refused the subscription: {packet.reason_codes[0].name.lower()}"
                )
            elif isinstance(packet, mqtt5.DisconnectPacket):
                raise Unavailable(f"the broker disconnected: {packet.reason_code.name.lower()}")
        return found

    async def _some(self) -> list[Packet | Unreadable]:
        """Return the next packets."""
        if self._early:
            early, self._early = self._early, []
            return early
        packets: list[Packet | Unreadable] = []
        while not packets:  # a large message comes in many pieces
            packets = list(self._packets.feed(await self._read()))
        return packets

    async def _read(self) -> bytes:
        """Answers to pings come, too: a broker that says nothing is dead."""
        try:
            async with asyncio.timeout(KEEPALIVE_S * 1.5):
                data = await self._reader.read(BUFFER_BYTES)
        except TimeoutError as error:
            raise Unavailable(
                f"nothing heard of the broker for {KEEPALIVE_S * 1.5:.0f} s"
            ) from error
        if not data and not self._is_answered:
            raise NoMqtt5Error("closed by the broker, which said nothing")
        if not data:
            raise Unavailable("closed by the broker")
        if not self._is_answered and data.startswith(NO_5) and not self._is_old:
            raise NoMqtt5Error("the broker knows no MQTT 5")
        return data
