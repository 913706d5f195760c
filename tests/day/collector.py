"""What came out, as the oracle wants it: events of clients, and dead letters in Kafka. The one file
here that knows how our readings are called.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from confluent_kafka import Consumer

from edgewake.protocol import topics
from edgewake.protocol.frames.dead_letter import DeadLetter
from edgewake.simulators.clients import Event
from tests.day.bridge_things import EAGER, LINES, POSTED
from tests.day.mqtt_things import PLAIN
from tests.day.oracle import Came, Oracle

POLL_S = 0.2
THING = {
    "tasmota_sensor": ("Total", "Power"),
    "zigbee": ("linkquality", "temperature"),
    "hall": ("n", "value"),
    "posted": ("n", "value"),
    "sent": ("n", "value"),
    "ticks": ("n", "value"),
    "sparkplug": ("n", "value"),
    "thingsboard": ("n", "value"),
    EAGER: ("n", "value"),
    POSTED: ("n", "value"),
    LINES: ("n", "value"),
    PLAIN: ("n", "value"),
}
"""Stream → the fields with number and value; the device is the field `thing`, where an agent sent
it."""


class Collector:
    """Notes what clients are shown, and what was kept aside."""

    def __init__(self, oracle: Oracle, units: int, objects: int) -> None:
        self._oracle, self._objects = oracle, objects
        self._halves: dict[tuple[int, int], dict[str, Any]] = {}
        """Of OPC UA: number and value of a moment that came apart."""
        self.streams = [[*THING, "plc", "bus"], [f"meter_{n + 1}" for n in range(units)]]
        """Of each client; one may follow 16."""
        self.newest: dict[str, int] = {}
        """Family → when was said what came, the latest."""
        self.gaps: list[dict[str, Any]] = []

    def on_event(self, _client: str, event: Event) -> None:
        """An event of a client."""
        body = json.loads(event.data)
        if event.name == "gap":
            self.gaps.append(body)
        elif event.name == "message":
            for came in self._read(body):
                self._oracle.came(came)
                put = self._oracle.puts.get((came.device, came.n))
                if put is not None:
                    self.newest[put.family] = max(self.newest.get(put.family, 0), put.at_ms)

    def _read(self, body: dict[str, Any]) -> list[Came]:
        stream = body["stream"]
        if stream in THING:
            return _thing(body, *THING[stream])
        if stream == "bus":
            return [Came(body["message"], body["n"], body["t"], body["value"])]
        if stream == "plc":
            return self._plc(body)
        return [Came(stream.replace("_", "-"), body["n"], body["t"], body["value"])]

    def _plc(self, body: dict[str, Any]) -> list[Came]:
        found, t = [], body["t"]
        for i in range(self._objects):
            said = {name: body.get(f"{name}_{i}") for name in ("n", "value")}
            said = {name: value for name, value in said.items() if value is not None}
            if not said:
                continue
            half = self._halves.pop((i, t), {})
            assert not half.keys() & said.keys(), f"plc-{i} at {t}: {half} and {said}"
            whole = {**half, **said}
            if len(whole) < 2:
                self._halves[i, t] = whole
            elif whole["n"]:
                found.append(Came(f"plc-{i}", whole["n"], t, whole["value"]))
        return found


def _thing(body: dict[str, Any], number: str, value: str) -> list[Came]:
    if body.get(number) is None:
        return []  # a birth, a death, a device's word about itself
    return [
        Came(
            body.get("thing") or body["device"],
            int(body[number]),
            body["t"],
            body.get(value),
            body.get(f"{value}_odd"),
        )
    ]


class Letters:
    """Reads the dead letters of plain devices, until it is stopped."""

    def __init__(self, oracle: Oracle, bootstrap: str) -> None:
        self._oracle = oracle
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "day-letters",
             "auto.offset.reset": "earliest", "allow.auto.create.topics": "true"}
        )  # fmt: skip
        self._consumer.subscribe([topics.DEAD])
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="letters", daemon=True)
        self.sparkplug = 0
        """Messages of nodes whose birth the bridge missed: they are asked for it again, and the
        oracle counts their numbers as missing."""
        self.others: list[bytes] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._is_over.is_set():
            message = self._consumer.poll(POLL_S)
            if message is None or message.error() is not None:
                continue
            letter = DeadLetter.from_headers(message.headers() or ())
            if letter.topic.startswith("spBv1.0/"):
                self.sparkplug += 1
            else:
                self._note(message.key() or b"", message.value() or b"")

    def _note(self, key: bytes, value: bytes) -> None:
        try:
            found = json.loads(value)
            for one in found if isinstance(found, list) else [found]:
                self._oracle.beside(key.decode(), one["n"], one["value"])
        except (ValueError, KeyError, TypeError):
            self.others.append(value)
