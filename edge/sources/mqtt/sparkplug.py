"""A host application of Sparkplug B 3.0 on a local broker.

Births, data and deaths of edge nodes and their devices become readings, with their names and times.

It says on `spBv1.0/STATE/HOST` that it is there, and its will that it is not, so that nodes keep
what they measure meanwhile (primary host). Sparkplug has no session: what was sent while nobody
listened is sent again by births, for which a node is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, Final, Literal

import mqtt5

from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.address import connected
from edgewake.edge.sources.config import SourceConfig, SourceContext
from edgewake.edge.sources.mqtt.mqtt_subscribe import Link
from edgewake.protocol.broker import BrokerConfig, client_id_of, tls_of
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames.field_names import put_over
from edgewake.protocol.maps.names import device_name
from edgewake.protocol.mqtt import Unreadable
from edgewake.protocol.names import THING, THING_ONLINE
from edgewake.protocol.plain import Check, key
from edgewake.protocol.sparkplug.host import (
    NAMESPACE,
    STATE,
    Event,
    Host,
    Odd,
    Reading,
    Rebirth,
    ThingPresence,
    is_death,
    marks_of,
    state,
)
from edgewake.protocol.sparkplug.names import checked_id
from edgewake.protocol.sparkplug.payload import rebirth

LOOK_S: Final = 0.25
"""Seconds between two looks at what waits for a message before it."""
LEAVE_S: Final = 1.0
"""Seconds that a broker has to close the connection of a host that said that it leaves: one that is
cut before may not have read it."""
BIRTH_PACKET: Final = 2
"""Packet id of what it says of itself; 1 is that of SUBSCRIBE."""


class SparkplugConfig(SourceConfig):
    """Edge nodes and devices of Sparkplug B 3.0 on a local broker."""

    type: Literal["sparkplug"]
    host_id: Annotated[str, Check(checked_id)] = "edgewake"
    """What it calls itself: nodes whose primary host has this name wait while it is away."""
    group: Annotated[str, Check(checked_id)] | None = None
    """Group that is heard; none: all."""
    reorder_s: float = key(default=2.0, ge=0, le=60)
    """Seconds that a message waits for one before it; then the node is asked for its births."""
    broker: BrokerConfig = BrokerConfig()

    def source(self, context: SourceContext) -> Sparkplug:
        return Sparkplug(self, context)

    def owns(self) -> str:
        return f"as the host {self.host_id} of {self.broker.host}:{self.broker.port}"

    @property
    def session_s(self) -> int:
        """Sparkplug wants a clean start."""
        return 0

    @property
    def retained(self) -> Literal["all"]:
        """Its own STATE, which another one may have left."""
        return "all"


class Sparkplug:
    """Follows the edge nodes of a broker, and queues the readings of their metrics."""

    policy = Policy.BLOCK

    def __init__(self, config: SparkplugConfig, context: SourceContext) -> None:
        """Raises ConfigError."""
        self._config = config
        self._clock = context.clock
        self._tls = tls_of(config.broker)
        self._client_id = client_id_of(context.device, config.host_id)
        self._state = f"{NAMESPACE}/{STATE}/{config.host_id}"

    async def run(self, intake: Intake) -> None:
        broker = self._config.broker
        host = Host(self._config.reorder_s)
        began_ms = self._clock.now_ms()
        will = mqtt5.Will(
            self._state,
            payload=state(False, began_ms),
            qos=mqtt5.QoS.AT_LEAST_ONCE,
            retain=True,
        )
        filters = [self._state, f"{NAMESPACE}/{self._config.group or '+'}/#"]
        async with connected(broker.host, broker.port, tls=self._tls) as (reader, writer):
            link = Link(reader, writer)
            await link.open(self._client_id, self._config, filters, will=will)
            self._say(link, True, began_ms)
            looking = asyncio.create_task(self._look(host, link, intake))

            def cut(_: asyncio.Task[None]) -> None:
                writer.transport.abort()

            looking.add_done_callback(cut)
            try:
                while True:
                    await self._take(host, link, intake, await link.publishes(), began_ms)
            finally:
                looking.remove_done_callback(cut)  # it says first that it leaves
                looking.cancel()
                await asyncio.wait({looking})
                self._say(link, False, self._clock.now_ms())
                link.send(mqtt5.DisconnectPacket())
                with suppress(TimeoutError, OSError):
                    async with asyncio.timeout(LEAVE_S):
                        await reader.read()

    def _say(self, link: Link, is_online: bool, t: int) -> None:
        """That it is there, or leaves."""
        link.send(
            mqtt5.PublishPacket(
                self._state,
                state(is_online, t),
                qos=mqtt5.QoS.AT_LEAST_ONCE,
                packet_id=BIRTH_PACKET,
                retain=True,
            )
        )

    async def _look(self, host: Host, link: Link, intake: Intake) -> None:
        while True:
            await self._clock.sleep(LOOK_S)
            await self._act(link, intake, host.due(self._clock.monotonic_s()))

    async def _take(
        self,
        host: Host,
        link: Link,
        intake: Intake,
        packets: Sequence[mqtt5.PublishPacket | Unreadable],
        began_ms: int,
    ) -> None:
        events: list[Event] = []
        for one in packets:
            if isinstance(one, Unreadable):
                intake.refuse(RejectReason.OVERSIZE, one.why)
            elif one.topic == self._state:
                if is_death(bytes(one.payload)):  # of a connection before this one
                    self._say(link, True, began_ms)
            elif one.topic.startswith(f"{NAMESPACE}/{STATE}/"):
                continue
            elif one.retain:
                intake.remark("retained messages passed over: births and data are never kept")
            else:
                now_ms, now_s = self._clock.now_ms(), self._clock.monotonic_s()
                events += host.message(one.topic, bytes(one.payload), now_ms, now_s)
        await self._act(link, intake, events)
        ids = [one.packet_id for one in packets if one.packet_id is not None]
        if ids:
            await intake.durable()
            for packet_id in ids:
                link.send(mqtt5.PubAckPacket(packet_id))
        await link.drained()

    async def _act(self, link: Link, intake: Intake, events: Sequence[Event]) -> None:
        bodies: list[dict[str, Any]] = []
        for one in events:
            if isinstance(one, Rebirth):
                link.send(mqtt5.PublishPacket(one.topic, rebirth(self._clock.now_ms())))
                intake.remark("nodes asked for their births")
            elif isinstance(one, Odd):
                if one.is_lost:
                    intake.refuse(RejectReason.SHAPE, one.what)
                else:
                    intake.remark(one.what)
            else:
                if isinstance(one, Reading):
                    intake.note_units(one.units)
                bodies.append(body_of(one, has_devices=self._config.has_devices))
        await intake.put(intake.check_all(bodies))


def body_of(one: Reading | ThingPresence, *, has_devices: bool) -> dict[str, Any]:
    """A reading or presence as an object. Pure.

    `has_devices`: are nodes and their devices devices of their own?
    """
    common: dict[str, Any] = {"t": one.t, THING: device_name(one.thing)}
    if isinstance(one, ThingPresence):
        word = {THING_ONLINE: one.is_online} if has_devices else {}
        return common | {"online": one.is_online} | word
    put_over(one.values, common | marks_of(one))
    return one.values
