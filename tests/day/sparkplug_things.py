"""Edge nodes of Sparkplug B with paho and protobuf: births, data by alias, a will, and patience
while their primary host is away (Sparkplug 3.0, 5.4 and 5.15). Nothing of ours: the messages are
described here once more.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from tests.day.oracle import Oracle, Put
from tests.day.things import Thing, now_ms

HOST = "edgewake"
GROUP = "hall"
INT64, DOUBLE, BOOLEAN, STRING = 4, 10, 11, 12
"""Datatypes of Sparkplug."""
N, VALUE = 1, 2
"""Aliases."""


def _message_class() -> Any:
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="day.proto", package="day", syntax="proto2")
    metric = file.message_type.add(name="Metric")
    for name, number, of in (
        ("name", 1, kind.TYPE_STRING), ("alias", 2, kind.TYPE_UINT64),
        ("timestamp", 3, kind.TYPE_UINT64), ("datatype", 4, kind.TYPE_UINT32),
        ("is_historical", 5, kind.TYPE_BOOL), ("is_null", 7, kind.TYPE_BOOL),
        ("long_value", 11, kind.TYPE_UINT64), ("double_value", 13, kind.TYPE_DOUBLE),
        ("boolean_value", 14, kind.TYPE_BOOL), ("string_value", 15, kind.TYPE_STRING),
    ):  # fmt: skip
        metric.field.add(name=name, number=number, type=of, label=kind.LABEL_OPTIONAL)
    payload = file.message_type.add(name="Payload")
    payload.field.add(name="timestamp", number=1, type=kind.TYPE_UINT64, label=kind.LABEL_OPTIONAL)
    payload.field.add(
        name="metrics", number=2, type=kind.TYPE_MESSAGE, type_name=".day.Metric",
        label=kind.LABEL_REPEATED,
    )  # fmt: skip
    payload.field.add(name="seq", number=3, type=kind.TYPE_UINT64, label=kind.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("day.Payload"))


Payload = _message_class()


class Node:
    """An edge node and its devices."""

    def __init__(
        self,
        name: str,
        devices: Sequence[str],
        port: int,
        oracle: Oracle,
        family: str = "sparkplug",
    ) -> None:
        self._name, self._port = name, port
        self.things = [
            Thing(family, f"{GROUP}.{name}.{device}", oracle, promised=False) for device in devices
        ]
        self._lock = threading.RLock()
        self._seq = 0
        self._bd_seq = -1
        self._is_host_there = False
        self._host_since = 0
        self._was_odd: dict[str, bool] = {}
        self._stored: list[Put] = []
        self._client: Client | None = None
        self.rebirths = 0

    async def start(self) -> None:
        self._bd_seq += 1
        client = Client(CallbackAPIVersion.VERSION2, f"node-{self._name}")
        self._client = client
        death = Payload()
        death.metrics.add(name="bdSeq", datatype=INT64, long_value=self._bd_seq)
        client.will_set(self._topic("NDEATH"), death.SerializeToString(), qos=1)
        client.on_connect = self._on_connect
        client.on_message = self._on_message
        client.reconnect_delay_set(0.2, 1.0)
        client.connect_async("127.0.0.1", self._port, keepalive=20)
        client.loop_start()

    async def say(self) -> None:
        with self._lock:
            for thing in self.things:
                put = thing.say()
                if self._is_host_there:
                    if self._was_odd.get(thing.name) is not thing.is_odd:
                        self._say_births()  # a metric has another type now
                    self._say_data(put, is_historical=False)
                else:
                    self._stored.append(put)

    async def restart(self) -> None:
        """Without a word: its will tells it."""
        assert self._client is not None
        self._client.loop_stop()
        with self._lock:
            self._is_host_there = False
        found = self._client.socket()
        if found is not None:
            found.close()
        await self.start()

    async def stop(self) -> None:
        assert self._client is not None
        self._client.disconnect()
        self._client.loop_stop()

    @property
    def waiting(self) -> int:
        with self._lock:
            return len(self._stored)

    def _topic(self, kind: str, device: str = "") -> str:
        of_device = f"/{device.rpartition('.')[2]}" if device else ""
        return f"spBv1.0/{GROUP}/{kind}/{self._name}{of_device}"

    def _on_connect(self, client: Client, *_: object) -> None:
        client.subscribe([(f"spBv1.0/STATE/{HOST}", 1), (self._topic("NCMD"), 1)])

    def _on_message(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        with self._lock:
            if message.topic.startswith("spBv1.0/STATE/"):
                said = json.loads(message.payload)
                if said["timestamp"] < self._host_since:
                    return  # a late will
                self._host_since = said["timestamp"]
                self._is_host_there = said["online"]
                if self._is_host_there:
                    self._say_births()
                    stored, self._stored = self._stored, []
                    for put in stored:
                        self._say_data(put, is_historical=True)
                return
            command = Payload.FromString(message.payload)
            if any(one.name == "Node Control/Rebirth" for one in command.metrics):
                self.rebirths += 1
                self._say_births()

    def _say_births(self) -> None:
        self._seq = -1
        node = Payload()
        node.metrics.add(name="bdSeq", datatype=INT64, long_value=self._bd_seq)
        node.metrics.add(name="Node Control/Rebirth", datatype=BOOLEAN, boolean_value=False)
        self._publish("NBIRTH", "", node)
        for thing in self.things:
            # What it measured last was said: a birth has no values here, but their names and types.
            self._was_odd[thing.name] = thing.is_odd
            birth = Payload()
            birth.metrics.add(name="n", alias=self._alias(thing, N), datatype=INT64, is_null=True)
            birth.metrics.add(
                name="value", alias=self._alias(thing, VALUE), is_null=True,
                datatype=STRING if thing.is_odd else DOUBLE,
            )  # fmt: skip
            self._publish("DBIRTH", thing.name, birth)

    def _say_data(self, put: Put, *, is_historical: bool) -> None:
        data = Payload()
        thing = next(one for one in self.things if one.name == put.device)
        more: dict[str, Any] = {"timestamp": put.t_ms}
        if is_historical:
            more["is_historical"] = True
        data.metrics.add(alias=self._alias(thing, N), long_value=put.n, **more)
        if isinstance(put.value, str):
            more["string_value"] = put.value
        else:
            more["double_value"] = put.value
        data.metrics.add(alias=self._alias(thing, VALUE), **more)
        self._publish("DDATA", put.device, data)

    def _alias(self, thing: Thing, of: int) -> int:
        return 10 * (self.things.index(thing) + 1) + of

    def _publish(self, kind: str, device: str, payload: Any) -> None:
        assert self._client is not None
        self._seq = (self._seq + 1) % 256
        payload.timestamp, payload.seq = now_ms(), self._seq
        self._client.publish(self._topic(kind, device), payload.SerializeToString(), qos=0)


async def reborn(nodes: Sequence[Node]) -> None:
    """Wait until nothing is stored in any."""
    while any(node.waiting for node in nodes):
        await asyncio.sleep(0.1)
