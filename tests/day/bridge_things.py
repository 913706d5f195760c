"""Devices that speak to a bridge with no agent between: an eager one that sends more than its share
and is told to wait, clients of ThingsBoard, programs at the door for HTTP.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import httpx
from paho.mqtt.client import Client, MQTTMessage

from tests.day.mqtt_things import RESEND_S, Plain, connection
from tests.day.oracle import Oracle, Put
from tests.day.things import Thing
from tests.day.web_things import Json, Lines

EAGER = "day_eager"
"""The stream of eager devices."""
POSTED = "day_posted"
"""The stream of what is posted to a bridge."""
LINES = "day_lines"
"""The measurement of line protocol, and so its stream."""


class Eager(Plain):
    """Devices that send all that they have at once, and each reading again until it is kept."""

    family, stream = "eager", EAGER
    # paho's own 20 would keep a slow machine's bursts within the share.
    inflight = 2_000

    def __init__(self, names: Sequence[str], port: int, oracle: Oracle) -> None:
        super().__init__(names, port, oracle)
        self._due_of: dict[tuple[str, int], float] = {}
        self.postponed = 0
        """How often `later` was said."""

    async def burst(self, count: int) -> None:
        """Say much more than one may."""
        for _ in range(count):
            await self.say()

    def _pump(self, name: str) -> None:
        client, now_s = self._client, time.monotonic()
        if client is None or not client.is_connected():
            return
        for seq, body in self._queues[name]:
            if now_s >= self._due_of.get((name, seq), 0.0):
                self._due_of[name, seq] = now_s + RESEND_S
                client.publish(f"ew/v1/{name}/up/{EAGER}/ack", body, qos=1)

    def _on_connect(self, client: Client, *more: object) -> None:
        super()._on_connect(client, *more)
        with self._lock:
            self._due_of.clear()

    def _on_message(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        name = message.topic.split("/")[2]
        with self._lock:
            for key, answer in json.loads(message.payload):
                seq = int(key.rpartition("|")[2])
                if isinstance(answer, dict) and "later" in answer:
                    self.postponed += 1
                    self._due_of[name, seq] = time.monotonic() + answer["retry_after_ms"] / 1000
                    continue
                self._due_of.pop((name, seq), None)
                for one in self._queues[name]:
                    if one[0] == seq:
                        self._queues[name].remove(one)
                        break


class ThingsBoard:
    """Clients of ThingsBoard's device API, each with its token; a PUBACK says that it is kept."""

    def __init__(self, names: Sequence[str], port: int, oracle: Oracle) -> None:
        # A message has no number: what was under way when its listener died may come twice.
        self.things = [Thing("thingsboard", name, oracle, may_double=True) for name in names]
        self._port = port
        self._clients: dict[str, Client] = {}

    async def start(self) -> None:
        for thing in self.things:
            self._clients[thing.name] = connection(thing.name, self._port, token=thing.name)

    async def say(self) -> None:
        for thing in self.things:
            put = thing.say()
            body = {"ts": put.t_ms, "values": {"n": put.n, "value": put.value}}
            self._clients[thing.name].publish("v1/devices/me/telemetry", json.dumps(body), qos=1)

    async def restart(self) -> None:
        """They keep nothing over a restart, and none is made of them."""

    async def stop(self) -> None:
        for client in self._clients.values():
            client.disconnect()
            client.loop_stop()

    @property
    def waiting(self) -> int:
        found = 0
        for client in self._clients.values():
            with client._out_message_mutex:
                found += len(client._out_messages)
        return found


class DoorJson(Json):
    """POST of a JSON object to the path of a device."""

    family = "door_json"

    async def _is_taken(self, name: str, put: Put) -> bool:
        body = {"t": put.t_ms, "n": put.n, "value": put.value}
        try:
            answer = await self._client.post(
                f"{self._url}/ew/v1/{name}/up/{POSTED}",
                json=body,
                headers={"Idempotency-Key": f"{name}-{put.n}"},
            )
        except httpx.HTTPError:
            return False
        return answer.status_code == 200


class DoorLines(Lines):
    """Line protocol to a bridge."""

    family, measurement = "door_lines", LINES
