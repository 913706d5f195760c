"""The uplink: frames of the log to the broker, acknowledgements of the cloud to the log.

The asyncio shell around `uplink_session`.

Durable first: a frame comes here when its bytes are committed; it is freed when the cloud's
acknowledgement came, and by nothing else. Every attempt is a compact message
(`edgewake.protocol.frames.compact`), which carries `sent_at`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import mqtt5

from edgewake.edge.downlink.feeds import Feeds
from edgewake.edge.downlink.inbox import Inbox
from edgewake.edge.liveness import Outgoing
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.keeping.work import FrameKey, OutFrame
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.mqtt_link import (
    CONNECT_TIMEOUT_S,
    PACKET_BYTES_MIN,
    MqttLink,
    TooLarge,
    WillRefused,
    connect,
)
from edgewake.edge.uplink import puback
from edgewake.edge.uplink.config import Sending
from edgewake.edge.uplink.goodput import Goodput
from edgewake.edge.uplink.one_way import OneWay
from edgewake.edge.uplink.presence import Presence
from edgewake.edge.uplink.puback import Puback
from edgewake.edge.uplink.quarantine import Quarantine
from edgewake.edge.uplink.refused import Refused
from edgewake.edge.uplink.route import Route
from edgewake.edge.uplink.schedule import Cap, Hours, closed_lanes
from edgewake.edge.uplink.session import UplinkEvent, UplinkSession, UplinkState, key_of
from edgewake.edge.uplink.time_floor import TimeFloor
from edgewake.protocol import topics
from edgewake.protocol.broker import tls_of
from edgewake.protocol.clock import CLOCK_FLOOR_MS, Clock, sleep_or
from edgewake.protocol.downlink.downlink import FEED
from edgewake.protocol.errors import ConfigError, RejectReason, RemoteError, Unavailable
from edgewake.protocol.frames import compact
from edgewake.protocol.frames.ack import Ack, Later, decode_joined
from edgewake.protocol.frames.compact import COMPACT_TYPE, Compact
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.mqtt import PACKET_BYTES_MAX
from edgewake.protocol.ops.device import DeviceStatus, FieldsSaid
from edgewake.protocol.topics import stream_and_thing

log = logging.getLogger("edgewake.uplink")

TICK_S: Final = 1.0
"""Longest wait before time-outs are looked at again."""
PACKET_OVERHEAD_BYTES: Final = 512
"""Bytes of a packet beside the frame at most: topic, content type, `sent_at`; and room for what TLS
adds."""
FRAME_OVERHEAD_BYTES: Final = 60
"""Bytes of it that a packet usually takes, for the cap: 25 of MQTT with a topic alias, 22 of TLS,
and a part of the answer to it."""
SENT_AT: Final = "sent_at"
SAY_LOST_S: Final = 10.0
"""Losses of one_way streams are said in one gap per stream and reason for so long: a gap is a
write, of which these streams make none."""


class Uplink:
    """Sends until `drain` is called. `status` gives what the periodic status says."""

    def __init__(
        self,
        config: Sending,
        events: EventLog,
        *,
        clock: Clock,
        rng: random.Random,
        status: Callable[[], DeviceStatus],
        fields: Callable[[], FieldsSaid] = dict,
        inbox: Inbox | None = None,
        feeds: Feeds | None = None,
        on_types: Callable[[str, Mapping[str, FieldType]], None] = lambda _stream, _types: None,
    ) -> None:
        """`inbox` gets the cloud's messages beside its answers, `feeds` other devices' readings.

        `fields`: see `Presence`. `on_types`: hears the types that operators have decided of a
        stream's fields.
        """
        self._on_types = on_types
        self._config = config
        self._events = events
        self._clock = clock
        self._inbox = inbox
        self._feeds = feeds
        if feeds is not None:
            feeds.send = self._ask_feed
        self._down_topic = topics.down(config.device, "")
        addresses = (config.mqtt, *config.fallback)
        for address in addresses:
            tls_of(address)  # a file that cannot be used is said at the start
        self._route = Route(addresses, config.uplink, clock, rng)
        self._time_floor = TimeFloor()
        self._cap = Cap(config.uplink.bytes_per_s_max)
        self._hours = {
            lane: tuple(map(Hours.parse, of)) for lane, of in config.uplink.hours.items()
        }
        self._goodput = Goodput()
        self._packet_bytes_max = PACKET_BYTES_MAX
        """The largest packet that the broker takes, as far as it let us know by disconnecting."""
        self._may_alias = True
        """Until a broker refuses the topic aliases that it offered."""
        self.session = UplinkSession(
            ack_timeout_s=config.uplink.ack_timeout_s,
            ack_timeout_max_s=config.uplink.ack_timeout_max_s,
            lane=events.lane,
        )
        self._presence = Presence(
            config.device,
            clock,
            status,
            interval_s=config.uplink.status_interval_s,
            fields=fields,
        )
        self.refused = Refused(self.session, events, Quarantine(config.data_dir), clock)
        self.one_way = OneWay(
            config.uplink.one_way_queue_max, config.uplink.one_way_queue_bytes_max
        )
        self._said_lost_s = float("-inf")
        self._link: MqttLink | None = None
        self._wake = asyncio.Event()
        self._draining = asyncio.Event()
        self.turned = asyncio.Event()
        """Set when a connection opens or is lost; who waits for it clears it."""
        self._asks_puback = config.uplink.qos == 1
        self._ack_topic = topics.acks(config.device)
        self.acked = 0
        """Frames that the cloud acknowledged, since the start."""
        self.rejected = 0
        """Frames that the cloud refused for ever."""

    # in

    def hand_over(self, frames: Sequence[OutFrame]) -> None:
        """Frames of the log, durable."""
        self.session.hand_over(frames)
        self._pump()

    def send_one_way(self, stream: str, readings: Sequence[Reading]) -> None:
        """Readings that may be lost."""
        self.one_way.add(stream, readings)
        self._pump()

    # life

    async def run(self) -> None:
        """Connect, send, connect again; returns when drained."""
        while not self.session.stopped:
            why = await self._one_connection()
            if self.session.stopped:
                break
            wait_s = self._route.choose()
            log.warning(
                "offline: %s; next try in %.1f s",
                why,
                wait_s,
                extra={"event": "uplink.offline", "why": why},
            )
            await sleep_or(self._clock, wait_s, self._draining)
            if self._draining.is_set():
                self.session.move(UplinkEvent.DRAIN)
        self.one_way.give_up()
        self._say_lost()

    def drain(self) -> None:
        """Send and wait for acknowledgements for at most `drain_s`, say goodbye, stop.

        What is left is sent after the next start.
        """
        self._draining.set()
        self._events.hurry()
        if self.session.state is UplinkState.STREAMING:
            self.session.move(UplinkEvent.DRAIN)
        self._wake.set()

    async def _one_connection(self) -> str:
        """Run one connection, and return why it ended."""
        session = self.session
        session.move(UplinkEvent.CONNECT)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                link = await self._open_unless_stopped()
        except (Unavailable, ConfigError, TimeoutError, OSError) as error:
            session.move(UplinkEvent.LOST)
            self._route.ended()
            return str(error) or "no answer"
        if link is None:
            session.move(UplinkEvent.DRAIN)
            return "stopped"
        self._route.connected()
        broker = self._route.broker
        log.info(
            "connected to %s:%d", broker.host, broker.port,
            extra={"event": "uplink.connected", "unacked": len(session),
                "home": self._route.is_home},
        )  # fmt: skip
        self._link = link
        self.turned.set()
        link.on_writable = self._pump
        self._events.start_sending(self._frame_bytes(link))
        if self._feeds is not None:
            self._feeds.connected()
        try:
            await self._stream(link)
        finally:
            self._link = None
            self._events.stop_sending()
            link.cut("closed")
        self._route.ended()
        session.move(UplinkEvent.LOST)
        self.turned.set()
        if link.too_large:
            self._packet_bytes_max = max(PACKET_BYTES_MIN, link.largest_sent - 1)
        self._may_alias = self._may_alias and not link.alias_refused
        return link.lost.result()

    async def _open_unless_stopped(self) -> MqttLink | None:
        """Open the connection; None where the agent must stop meanwhile.

        What it has is sent after the next start.
        """
        opening = asyncio.ensure_future(self._open())
        stop = asyncio.ensure_future(self._draining.wait())
        try:
            await asyncio.wait({opening, stop}, return_when=asyncio.FIRST_COMPLETED)
            return await opening if opening.done() else None
        finally:
            stop.cancel()
            opening.cancel()
            await asyncio.wait({opening})

    async def _open(self) -> MqttLink:
        broker = self._route.broker
        tls = tls_of(broker)  # read again each time: certificates are renewed while the agent runs
        if tls is not None:
            self._time_floor.prepare(tls, self._clock.now_ms())
        link = await connect(broker, tls, self._new_link)
        try:
            if (
                tls is not None
                and (why := self._time_floor.opened(link.certificate, self._clock.now_ms()))
                is not None
            ):
                raise Unavailable(why)
            self.session.move(UplinkEvent.CONNECTED)
            will = self._presence.will()
            keepalive_s = self._config.uplink.keepalive_s
            asked_s = self._goodput.keepalive_s(keepalive_s, self.session.largest)
            self._goodput.connected()
            link.on_counters = lambda now_s, outgoing: self._on_counters(link, now_s, outgoing)
            link.packet_bytes_max = self._packet_bytes_max
            link.may_alias = self._may_alias
            await link.open(
                self._config.device, broker, keepalive_s=keepalive_s, asked_s=asked_s, will=will
            )
            self._asks_puback = link.confirms and self._config.uplink.qos == 1
            refused = await link.subscribe(
                self._ack_topic, *([self._down_topic + "+"] if self._inbox else ())
            )
            if refused:
                log.warning(
                    "the broker lets nothing come down: %s",
                    refused,
                    extra={"event": "downlink.not_subscribed"},
                )
            self.session.move(UplinkEvent.SUBSCRIBED)
        except WillRefused:
            self._presence.will_qos = mqtt5.QoS.AT_MOST_ONCE
            link.cut("not opened")
            raise
        except BaseException:
            link.cut("not opened")
            raise
        return link

    def _new_link(self) -> MqttLink:
        link = MqttLink(
            on_message=lambda packet: self._on_message(link, packet), on_puback=self._on_puback
        )
        return link

    def _on_counters(self, link: MqttLink, now_s: float, outgoing: Outgoing) -> str | None:
        """About once a second: measure the link, cut the next frames to it.

        Why the connection is dead; None while it lives.
        """
        self._goodput.sample(now_s, outgoing)
        if link is self._link:
            self._events.set_frame_bytes(self._frame_bytes(link))
        return (
            None
            if link.liveness is None
            else link.liveness.check(now_s, outgoing, self.session.oldest_publish)
        )

    def _frame_bytes(self, link: MqttLink) -> int:
        most = min(
            self._config.uplink.frame_bytes_max, link.packet_bytes_max - PACKET_OVERHEAD_BYTES
        )
        return self._goodput.frame_bytes(most, cap_bytes_per_s=self._config.uplink.bytes_per_s_max)

    async def _stream(self, link: MqttLink) -> None:
        """Until the connection is gone or everything is drained."""
        drain_until_s: float | None = None
        link.lost.add_done_callback(lambda _why: self._wake.set())
        while not link.lost.done():
            now_s = self._clock.monotonic_s()
            await self.refused.keep()
            self._keep_hours()
            if now_s >= self._said_lost_s + SAY_LOST_S and not len(self.one_way):
                self._say_lost(now_s)
            if (why := self._time_floor.look(self._clock.now_ms())) is not None:
                link.cut(why)
                break
            self._route.look_for_home(lambda: link.cut("home answers again"))
            self._presence.say(
                link, now_s, has_room=bool(self._room()), confirmed=self._asks_puback
            )
            self._pump()
            if self.session.state is UplinkState.DRAINING:
                drain_until_s = drain_until_s or now_s + self._config.uplink.drain_s
                if self._all_sent() or now_s >= drain_until_s:
                    await self._presence.goodbye(link)
                    return
            self._wake.clear()
            await self._until_due(now_s, drain_until_s)

    def _say_lost(self, now_s: float = float("-inf")) -> None:
        """Record losses of the one-way streams in the log, when they flow again or we stop."""
        self._said_lost_s = now_s
        for (stream, reason), count in self.one_way.take_unsaid().items():
            log.error(
                "%d readings of the one_way stream %s were lost: %s", count, stream, reason,
                extra={"event": "uplink.one_way_lost", "stream": stream, "count": count,
                    "reason": reason},
            )  # fmt: skip
            self._events.stream(stream).lose(count, reason)

    def _all_sent(self) -> bool:
        return (
            not len(self.session)
            and not len(self.one_way)
            and not len(self.refused)
            and self._events.all_framed
        )

    async def _until_due(self, now_s: float, drain_until_s: float | None) -> None:
        times = [self._presence.due_s, now_s + TICK_S, drain_until_s]
        # Without room nothing can be done about it, and `_pump` is called when there is some.
        if self._room():
            times.append(self.session.next_due_s())
        times.append(self._cap.due_s(now_s))
        wait_s = max(0.0, min(at for at in times if at is not None) - now_s)
        try:
            async with asyncio.timeout(wait_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    # frames

    def _room(self) -> int:
        """The number of frames that the connection takes now."""
        link = self._link
        if link is None or self._cap.due_s(self._clock.monotonic_s()) is not None:
            return 0
        return (
            link.room
            if self._asks_puback
            else self._config.uplink.inflight_frames_max * link.is_writable
        )

    def _pump(self) -> None:
        """Send what may be sent now."""
        link = self._link
        if link is None or not self.session.sends:
            return
        now_s = self._clock.monotonic_s()
        for frame in self.session.to_send(now_s, self._room()):
            try:
                packet_id = self._publish(link, frame)
            except TooLarge as error:
                self._refuse(frame, RejectReason.OVERSIZE, str(error))
                continue
            self.session.sent(frame.key, packet_id, now_s)
            self._cap.spent(len(frame.payload) + FRAME_OVERHEAD_BYTES, now_s)
            if not self._room():
                break
        self.one_way.send(
            lambda: link.is_writable and self._cap.due_s(now_s) is None,
            lambda stream, payload: self._publish_one_way(link, stream, payload, now_s),
        )

    def _publish(self, link: MqttLink, frame: OutFrame) -> int | None:
        key = frame.key
        payload = compact.encode(
            Compact(self._clock.now_ms(), key.epoch, key.frame, frame.content_type, frame.payload)
        )
        topic = topics.up(self._config.device, key.stream)
        return link.publish(
            topic, payload, confirmed=self._asks_puback, aliased=True, content_type=COMPACT_TYPE
        )

    def _publish_one_way(self, link: MqttLink, stream: str, payload: bytes, now_s: float) -> None:
        self._cap.spent(len(payload) + FRAME_OVERHEAD_BYTES, now_s)
        sent_at = [(SENT_AT, str(self._clock.now_ms()))]
        link.publish(
            topics.up(self._config.device, stream),
            payload,
            confirmed=False,
            aliased=True,
            user_properties=sent_at,
        )

    def _on_puback(self, packet_id: int, reason: int) -> None:
        paused = self.session.paused_streams
        found = self.session.on_puback(packet_id, reason, self._clock.monotonic_s())
        if reason and found is not None:
            key, says = found
            log.warning(
                "the broker answered %s to frame %s/%d/%d", puback.name(reason), key.stream,
                key.epoch, key.frame,
                extra={"event": "uplink.puback", "reason": reason, "stream": key.stream},
            )  # fmt: skip
            frame = self.session.frame(key)
            if says is Puback.NEVER and frame is not None:
                self._refuse(
                    frame,
                    puback.REJECT_REASONS[reason],
                    f"the broker refuses it for good: {puback.name(reason)}",
                )
        self._pauses_changed(paused)
        self._pump()

    def _pauses_changed(self, before: frozenset[str]) -> None:
        """Tell the log which streams wait; waiting callers ask again."""
        if self.session.paused_streams != before:
            self._events.pause(self.session.paused_streams, self.session.closed_lanes)
            self._wake.set()

    def _keep_hours(self) -> None:
        """Lanes whose hours have ended wait in the log."""
        now_ms = self._clock.now_ms()
        # Unset, it knows no hours.
        closed = closed_lanes(self._hours, now_ms) if now_ms >= CLOCK_FLOOR_MS else frozenset()
        if closed != self.session.closed_lanes:
            self.session.closed_lanes = closed
            self._events.pause(self.session.paused_streams, closed)
            log.info(
                "lanes that wait for their hours: %s",
                ", ".join(sorted(closed)) or "none",
                extra={"event": "uplink.hours"},
            )

    def _refuse(self, frame: OutFrame, reason: RejectReason, why: str) -> None:
        paused = self.session.paused_streams
        if self.refused.add(frame, reason, why):
            self._pauses_changed(paused)
            self._wake.set()

    def _ask_feed(self, payload: bytes) -> bool:
        """Send a question that may be lost; returns False without a connection for it."""
        link = self._link
        if link is None or not link.is_writable:
            return False
        try:
            link.publish(topics.feed(self._config.device), payload, confirmed=False)
        except TooLarge as error:
            log.error("a question for a feed: %s", error, extra={"event": "feed.too_large"})
            return False
        return True

    def _on_message(self, link: MqttLink, packet: mqtt5.PublishPacket) -> bool:
        if packet.topic == self._ack_topic:
            self._on_answers(packet)
        elif self._inbox is not None and packet.topic.startswith(self._down_topic):
            kind = packet.topic.removeprefix(self._down_topic)
            if kind == FEED and self._feeds is not None:
                self._feeds.take(packet.payload, lambda reason: link.acknowledge(packet, reason))
                return True
            self._inbox.take(
                kind,
                packet.payload,
                packet.message_expiry_interval,
                lambda reason: link.acknowledge(packet, reason),
            )
            return True
        return False

    def _on_answers(self, packet: mqtt5.PublishPacket) -> None:
        try:
            answers = [(key_of(data), answer) for data, answer in decode_joined(packet.payload)]
        except RemoteError as error:
            log.warning(
                "cannot read the cloud's answer: %s", error, extra={"event": "uplink.bad_ack"}
            )
            return
        paused = self.session.paused_streams
        for key, answer in answers:
            if isinstance(answer, Later):
                self._postpone(key, answer)
                self._wake.set()  # it is to be sent again earlier or later than was known
            else:
                self._free(key, answer)
        if self.session.is_hurried:
            self.session.is_hurried = False
            self._wake.set()
        self._pauses_changed(paused)
        self._pump()

    def _postpone(self, key: FrameKey, later: Later) -> None:
        is_first = key.stream not in self.session.paused_streams
        if self.session.on_later(key, later, self._clock.monotonic_s()):
            log.log(
                logging.WARNING if is_first else logging.DEBUG,
                "the cloud asks stream %s to wait %.0f s: %s: %s", key.stream,
                later.retry_after_ms / 1000, later.reason, later.detail,
                extra={"event": "uplink.later", "stream": key.stream, "reason": later.reason.value},
            )  # fmt: skip

    def _free(self, key: FrameKey, ack: Ack) -> None:
        freed = self.session.on_ack(key, ack, self._clock.monotonic_s())
        if freed is None:
            return
        if ack.types:
            self._on_types(stream_and_thing(key.stream)[0], ack.types)
        self._events.free(freed.key, freed.rejected)
        if freed.rejected is None:
            self.acked += 1
        else:
            self.rejected += 1
            log.error(
                "the cloud refused frame %s/%d/%d: %s: %s", key.stream, key.epoch, key.frame,
                freed.rejected, freed.detail,
                extra={"event": "uplink.rejected", "token": str(ack.token),
                    "reason": freed.rejected.value},
            )  # fmt: skip
        if self._draining.is_set() and not len(self.session):
            self._wake.set()

    def counts(self) -> Mapping[str, int]:
        """The counts for the status."""
        return {
            "in_flight": len(self.session),
            "acked_frames": self.acked,
            "rejected_frames": self.rejected,
            "resent_frames": self.session.resent,
            "postponed_frames": self.session.postponed,
            "refused_by_broker": self.session.refused_by_broker,
            "quarantined_frames": self.refused.quarantined,
            "one_way_sent": self.one_way.sent,
            "one_way_dropped": self.one_way.dropped,
        }
