"""Devices that publish by MQTT, with paho: plain ones of ours that wait for their answers, and
Tasmota plugs and Zigbee sensors on the broker of a house.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.day.oracle import Oracle, Put
from tests.day.things import Thing

RESEND_S = 4.0
"""Seconds without an answer after which a plain device says it again."""
PUMP_S = 0.2
PLAIN = "day_plain"
"""The stream of plain devices."""


def connection(name: str, port: int, token: str = "", inflight: int = 20) -> Client:
    """A client that comes back by itself. `token`: its user name; `inflight`: messages at once."""
    client = Client(CallbackAPIVersion.VERSION2, name, protocol=MQTTProtocolVersion.MQTTv311)
    if token:
        client.username_pw_set(token)
    client.max_inflight_messages_set(inflight)
    client.reconnect_delay_set(0.2, 1.0)
    client.connect_async("127.0.0.1", port, keepalive=20)
    client.loop_start()
    return client


class Plain:
    """One connection of ten devices, each of which sends a reading, waits for the answer that Kafka
    has it, and sends the next one; without an answer it sends it again.
    """

    family, stream = "plain", PLAIN
    inflight = 20
    """Messages under way at once."""

    def __init__(self, names: Sequence[str], port: int, oracle: Oracle) -> None:
        self.things = [Thing(self.family, name, oracle) for name in names]
        self._port = port
        self._lock = threading.Lock()
        self._queues: dict[str, deque[tuple[int, bytes]]] = {name: deque() for name in names}
        """By device: what is not answered yet, the first of it under way."""
        self._due_s = dict.fromkeys(names, 0.0)
        self._epoch = 1
        self._seq = dict.fromkeys(names, 0)
        self.refused = 0
        self._client: Client | None = None
        self._pumping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._client = self._connected()
        self._pumping = asyncio.create_task(self._pump_for_ever())

    def _connected(self) -> Client:
        client = connection(
            f"day-{self.things[0].name}-{self._epoch}", self._port, inflight=self.inflight
        )
        client.on_connect = self._on_connect
        client.on_message = self._on_message
        return client

    async def say(self) -> None:
        for thing in self.things:
            put = thing.say()
            with self._lock:
                self._seq[thing.name] += 1
                seq = self._seq[thing.name]
                body: Any = {
                    "t": put.t_ms, "epoch": self._epoch, "seq": seq, "n": put.n, "value": put.value,
                }  # fmt: skip
                if isinstance(put.value, str):
                    body = [body]  # of a list it is told that a reading is refused, and not to wait
                self._queues[thing.name].append((seq, json.dumps(body).encode()))

    async def restart(self) -> None:
        """A boot more: numbers begin anew; what was not answered is in its flash."""
        assert self._client is not None
        self._client.loop_stop()
        found = self._client.socket()
        if found is not None:
            found.close()  # without a word
        with self._lock:
            self._epoch += 1
            self._seq = dict.fromkeys(self._seq, 0)
            self._due_s = dict.fromkeys(self._due_s, 0.0)
        self._client = self._connected()

    async def stop(self) -> None:
        assert self._pumping is not None
        assert self._client is not None
        self._pumping.cancel()
        self._client.disconnect()
        self._client.loop_stop()

    @property
    def waiting(self) -> int:
        with self._lock:
            return sum(map(len, self._queues.values()))

    async def _pump_for_ever(self) -> None:
        while True:
            with self._lock:
                for name in self._queues:
                    self._pump(name)
            await asyncio.sleep(PUMP_S)

    def _pump(self, name: str) -> None:
        """Send the first of a device, where it is due. The caller has the lock."""
        client, queue = self._client, self._queues[name]
        now_s = time.monotonic()
        if client is None or not queue or now_s < self._due_s[name] or not client.is_connected():
            return
        self._due_s[name] = now_s + RESEND_S
        client.publish(f"ew/v1/{name}/up/{PLAIN}/ack", queue[0][1], qos=1)

    def _on_connect(self, client: Client, *_: object) -> None:
        client.subscribe([(f"ew/v1/{name}/acks", 1) for name in self._queues])
        with self._lock:
            self._due_s = dict.fromkeys(self._due_s, 0.0)

    def _on_message(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        name = message.topic.split("/")[2]
        for key, answer in json.loads(message.payload):
            with self._lock:
                queue = self._queues[name]
                if not queue or key != f"{PLAIN}|{queue[0][0]}":
                    continue
                if isinstance(answer, dict) and "later" in answer:
                    after_s = max(answer.get("retry_after_ms", 0) / 1000, PUMP_S)
                    self._due_s[name] = time.monotonic() + after_s
                    continue
                self.refused += isinstance(answer, dict)
                queue.popleft()
                self._due_s[name] = 0.0
                self._pump(name)


class House:
    """Devices on the broker of a house, which keeps their messages for who reads along."""

    def __init__(
        self, family: str, names: Sequence[str], port: int, oracle: Oracle, *, at_ours: bool = False
    ) -> None:
        """`at_ours`: on the broker whose death the day brings, and so without a promise: nobody
        waits for an answer, and what was under way when its listener died may come twice.
        """
        self.things = [
            Thing(family, name, oracle, promised=not at_ours, may_double=at_ours) for name in names
        ]
        self._family, self._port = family, port
        self._is_tasmota = family.startswith("tasmota")
        self._grain_ms = 1000 if self._is_tasmota else 1
        self._boots = 0
        self._client: Client | None = None

    async def start(self) -> None:
        self._boots += 1
        self._client = connection(f"{self._family}-{self._boots}", self._port)

    async def say(self) -> None:
        assert self._client is not None
        for thing in self.things:
            put = thing.say(grain_ms=self._grain_ms)
            topic, body = (_tasmota if self._is_tasmota else _zigbee)(put)
            # The client keeps it until the broker has it, also while there is no connection.
            self._client.publish(topic, json.dumps(body), qos=1)

    async def restart(self) -> None:
        """Once the broker has what was said: these devices keep nothing over a restart."""
        assert self._client is not None
        while self.waiting:
            await asyncio.sleep(PUMP_S)
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        assert self._client is not None
        self._client.disconnect()
        self._client.loop_stop()

    @property
    def waiting(self) -> int:
        assert self._client is not None
        with self._client._out_message_mutex:
            return len(self._client._out_messages)


def _tasmota(put: Put) -> tuple[str, dict[str, Any]]:
    moment = datetime.fromtimestamp(put.t_ms / 1000, UTC)
    body = {
        "Time": moment.strftime("%Y-%m-%dT%H:%M:%S"),
        "ENERGY": {"TotalStartTime": "2026-01-01T00:00:00", "Total": put.n, "Power": put.value},
    }
    return f"tele/{put.device}/SENSOR", body


def _zigbee(put: Put) -> tuple[str, dict[str, Any]]:
    moment = datetime.fromtimestamp(put.t_ms // 1000, UTC)
    text = f"{moment:%Y-%m-%dT%H:%M:%S}.{put.t_ms % 1000:03}Z"
    body = {"last_seen": text, "linkquality": put.n, "battery": 91, "temperature": put.value}
    return f"zigbee2mqtt/{put.device}", body
