"""The uplink: frames of the log to the broker, acknowledgements of the cloud to the log. The asyncio shell around `uplink_session`.

Durable first: a frame comes here when its bytes are committed; it is freed when the cloud's acknowledgement came, and by nothing else.
Every attempt carries content type, response topic, correlation data and `sent_at`. One-way readings wait in a bounded queue for the
connection and go out with QoS 0, as plain JSON objects.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import mqtt5
import orjson

from edgewake.edge.backoff import Backoff
from edgewake.edge.config import AgentConfig
from edgewake.edge.event_log import EventLog
from edgewake.edge.log_codec import Reading
from edgewake.edge.log_store import FrameKey, OutFrame
from edgewake.edge.mqtt_link import CONNECT_TIMEOUT_S, MqttLink, connect, tls_of
from edgewake.edge.uplink_session import UplinkEvent, UplinkSession, UplinkState, correlation, key_of
from edgewake.protocol import topics
from edgewake.protocol.ack import Ack, Later, decode_answer, decode_joined
from edgewake.protocol.clock import Clock
from edgewake.protocol.device import DeviceState, DeviceStatus
from edgewake.protocol.errors import RemoteError, Unavailable

log = logging.getLogger("edgewake.uplink")

TICK_S: Final = 1.0
"""Longest wait before time-outs are looked at again."""
SENT_AT: Final = "sent_at"


class Uplink:
    """Sends until `drain` is called. `status` gives what the periodic status says."""

    def __init__(
        self, config: AgentConfig, events: EventLog, *, clock: Clock, rng: random.Random, status: Callable[[], DeviceStatus]
    ) -> None:
        self._config = config
        self._events = events
        self._clock = clock
        self._status = status
        self._tls: ssl.SSLContext | None = tls_of(config.mqtt)
        self._backoff = Backoff(config.uplink.backoff_min_s, config.uplink.backoff_max_s, rng)
        self.session = UplinkSession(ack_timeout_s=config.uplink.ack_timeout_s, ack_timeout_max_s=config.uplink.ack_timeout_max_s)
        self._link: MqttLink | None = None
        self._wake = asyncio.Event()
        self._draining = asyncio.Event()
        self._one_way: deque[tuple[str, bytes]] = deque()
        self._asks_puback = config.uplink.qos == 1
        self._ack_topic = topics.ack(config.device) if self._asks_puback else topics.acks(config.device)
        self._status_due_s = 0.0
        self._connected_at = 0
        self.acked = 0
        """Frames that the cloud acknowledged, since the start."""
        self.rejected = 0
        """Frames that the cloud refused for ever."""
        self.one_way_sent = 0
        self.one_way_dropped = 0

    # in

    def hand_over(self, frames: Sequence[OutFrame]) -> None:
        """Frames of the log, durable."""
        self.session.hand_over(frames)
        self._pump()

    def send_one_way(self, stream: str, readings: Sequence[Reading]) -> None:
        """Readings that may be lost. At the bound the oldest go, counted."""
        for t, fields in readings:
            if len(self._one_way) >= self._config.uplink.one_way_queue_max:
                self._one_way.popleft()
                self.one_way_dropped += 1
            self._one_way.append((stream, orjson.dumps({"t": t, **fields})))
        self._pump()

    # life

    async def run(self) -> None:
        """Connect, send, connect again; returns when drained."""
        while not self.session.stopped:
            why = await self._one_connection()
            if self.session.stopped:
                break
            wait_s = self._backoff.next_s()
            log.warning("offline: %s; next try in %.1f s", why, wait_s, extra={"event": "uplink.offline", "why": why})
            await self._nap(wait_s)
            if self._draining.is_set():
                self.session.move(UplinkEvent.DRAIN)

    def drain(self) -> None:
        """Send and wait for acknowledgements for at most `drain_s`, say goodbye, stop. What is left is sent after the next start."""
        self._draining.set()
        if self.session.state is UplinkState.STREAMING:
            self.session.move(UplinkEvent.DRAIN)
        self._wake.set()

    async def _nap(self, seconds: float) -> None:
        sleeper = asyncio.ensure_future(self._clock.sleep(seconds))
        stop = asyncio.ensure_future(self._draining.wait())
        try:
            await asyncio.wait({sleeper, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeper.cancel()
            stop.cancel()

    async def _one_connection(self) -> str:
        """From connecting to the end of the connection; why it ended."""
        session = self.session
        session.move(UplinkEvent.CONNECT)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                link = await self._open()
        except (Unavailable, TimeoutError, OSError) as error:
            session.move(UplinkEvent.LOST)
            return str(error) or "no answer"
        if self._draining.is_set():
            session.move(UplinkEvent.DRAIN)
        began_s, self._connected_at = self._clock.monotonic_s(), self._clock.now_ms()
        log.info(
            "connected to %s:%d",
            self._config.mqtt.host,
            self._config.mqtt.port,
            extra={"event": "uplink.connected", "unacked": len(session)},
        )
        self._link = link
        self._events.start_sending()
        try:
            await self._stream(link)
        finally:
            self._link = None
            self._events.stop_sending()
            link.cut("closed")
        self._backoff.connection_lasted(self._clock.monotonic_s() - began_s)
        session.move(UplinkEvent.LOST)
        return link.lost.result()

    async def _open(self) -> MqttLink:
        link = await connect(self._config.mqtt, self._tls, lambda: MqttLink(on_message=self._on_message, on_puback=self._on_puback))
        try:
            self.session.move(UplinkEvent.CONNECTED)
            last = DeviceStatus(device=self._config.device, state=DeviceState.OFFLINE)
            will = mqtt5.Will(topics.status(self._config.device), payload=_json(last), qos=mqtt5.QoS.AT_LEAST_ONCE)
            await link.open(
                self._config.device, self._config.mqtt, keepalive_s=self._config.uplink.keepalive_s, will=will, topic=self._ack_topic
            )
            self.session.move(UplinkEvent.SUBSCRIBED)
        except BaseException:
            link.cut("not opened")
            raise
        return link

    async def _stream(self, link: MqttLink) -> None:
        """Until the connection is gone or everything is drained."""
        self._status_due_s = 0.0
        drain_until_s: float | None = None
        link.lost.add_done_callback(lambda _why: self._wake.set())
        while not link.lost.done():
            now_s = self._clock.monotonic_s()
            self._publish_status(link, now_s)
            self._pump()
            if self.session.state is UplinkState.DRAINING:
                drain_until_s = drain_until_s or now_s + self._config.uplink.drain_s
                if self._all_sent() or now_s >= drain_until_s:
                    await self._goodbye(link)
                    return
            self._wake.clear()
            await self._until_due(now_s, drain_until_s)

    def _all_sent(self) -> bool:
        return not len(self.session) and not self._one_way and self._events.all_framed

    async def _until_due(self, now_s: float, drain_until_s: float | None) -> None:
        times = [self._status_due_s, now_s + TICK_S, self.session.next_due_s(), drain_until_s]
        wait_s = max(0.0, min(at for at in times if at is not None) - now_s)
        try:
            async with asyncio.timeout(wait_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _publish_status(self, link: MqttLink, now_s: float) -> None:
        if now_s >= self._status_due_s and link.room:
            self._status_due_s = now_s + self._config.uplink.status_interval_s
            status = self._status().model_copy(update={"connected_at": self._connected_at})
            link.publish(topics.status(self._config.device), _json(status))

    async def _goodbye(self, link: MqttLink) -> None:
        offline = DeviceStatus(device=self._config.device, state=DeviceState.OFFLINE, sent_at=self._clock.now_ms())
        link.publish_once(topics.status(self._config.device), _json(offline))
        await link.close()

    # frames

    def _pump(self) -> None:
        """Send what may be sent now."""
        link = self._link
        if link is None or not self.session.sends:
            return
        now_s = self._clock.monotonic_s()
        for frame in self.session.to_send(now_s, link.room if self._asks_puback else self._config.uplink.inflight_frames_max):
            if not (link.room if self._asks_puback else link.is_writable):
                break
            self.session.sent(frame.key, self._publish(link, frame), now_s)
        while self._one_way and link.writable.is_set():
            stream, payload = self._one_way.popleft()
            link.publish_once(topics.up(self._config.device, stream), payload, user_properties=[(SENT_AT, str(self._clock.now_ms()))])
            self.one_way_sent += 1
        if not link.writable.is_set():
            asyncio.ensure_future(self._pump_when_writable(link))  # noqa: RUF006

    async def _pump_when_writable(self, link: MqttLink) -> None:
        await link.writable.wait()
        self._wake.set()

    def _publish(self, link: MqttLink, frame: OutFrame) -> int | None:
        publish = link.publish if self._asks_puback else link.publish_once
        return publish(
            topics.up(self._config.device, frame.key.stream),
            frame.payload,
            content_type=frame.content_type,
            response_topic=self._ack_topic,
            correlation_data=correlation(frame.key),
            user_properties=[(SENT_AT, str(self._clock.now_ms()))],
        )

    def _on_puback(self, packet_id: int, reason: int) -> None:
        key = self.session.on_puback(packet_id, reason, self._clock.monotonic_s())
        if reason and key is not None:
            log.warning(
                "the broker did not deliver frame %s: reason 0x%02x", key, reason, extra={"event": "uplink.puback", "reason": reason}
            )
        self._pump()

    def _on_message(self, packet: mqtt5.PublishPacket) -> None:
        if packet.topic != self._ack_topic:
            return
        try:
            if self._asks_puback:
                answers = [(key_of(packet.correlation_data), decode_answer(packet.payload))]
            else:
                answers = [(key_of(data), answer) for data, answer in decode_joined(packet.payload)]
        except RemoteError as error:
            log.warning("cannot read the cloud's answer: %s", error, extra={"event": "uplink.bad_ack"})
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
        if self.session.paused_streams != paused:
            self._events.pause(self.session.paused_streams)
        self._pump()

    def _postpone(self, key: FrameKey, later: Later) -> None:
        is_first = key.stream not in self.session.paused_streams
        if self.session.on_later(key, later, self._clock.monotonic_s()):
            log.log(
                logging.WARNING if is_first else logging.DEBUG,
                "the cloud asks stream %s to wait %.0f s: %s: %s", key.stream, later.retry_after_ms / 1000, later.reason, later.detail,
                extra={"event": "uplink.later", "stream": key.stream, "reason": later.reason.value},
            )  # fmt: skip

    def _free(self, key: FrameKey, ack: Ack) -> None:
        freed = self.session.on_ack(key, ack, self._clock.monotonic_s())
        if freed is None:
            return
        self._events.free(freed.key, freed.rejected)
        if freed.rejected is None:
            self.acked += 1
        else:
            self.rejected += 1
            log.error(
                "the cloud refused frame %s/%d/%d: %s: %s", key.stream, key.epoch, key.frame, freed.rejected, freed.detail,
                extra={"event": "uplink.rejected", "token": str(ack.token), "reason": freed.rejected.value},
            )  # fmt: skip
        if not len(self.session):
            self._wake.set()

    def counts(self) -> Mapping[str, int]:
        """For the status."""
        return {
            "in_flight": len(self.session),
            "acked_frames": self.acked,
            "rejected_frames": self.rejected,
            "resent_frames": self.session.resent,
            "postponed_frames": self.session.postponed,
            "refused_by_broker": self.session.refused_by_broker,
            "one_way_sent": self.one_way_sent,
            "one_way_dropped": self.one_way_dropped,
        }


def _json(status: DeviceStatus) -> bytes:
    return status.model_dump_json(exclude_none=True).encode()
