"""The story in bad weather: two bridges of three dead for good, a storm of clients that hang up, a
device that lies, 20,000 devices.

    make bad-weather

Real agents, broker, bridges, Kafka, sequencer, Spark and access servers; the ledger judges as in
the story and its verdict is printed. Everything happens at the same time: while 20,000 plain
devices publish with QoS 1 and nothing but PUBACK as an answer, two bridges are killed and stay
dead, 1000 clients open streams and drop them, and one device sends whatever a device can send. Exit
code 1 if the verdict is not clean.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import tempfile
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from edgewake.simulators.clients import Event, Follower
from edgewake.simulators.ledger import Ledger, Reading
from tests.story.feeder import Feeder
from tests.story.system import System
from tests.story.test_story import QUERY, SQL, STREAM, WINDOW_MS, Notes

AGENTS = ("agent-a", "agent-b", "agent-c")
PER_SECOND = 40.0
READINGS_EACH = 3
"""Of each of the 20,000 devices."""
CONNECTIONS = 20
"""MQTT connections over which they publish; the demo's broker lets one speak for many."""
IN_FLIGHT = 200
"""QoS 1 messages of a connection that wait for PUBACK."""
LIAR = "liar"
DRAIN_S = 600.0


class Watch(Notes):
    """Notes for the ledger without the liar's own events, and how old agents' readings are when
    they come.
    """

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.oldest_s: dict[str, float] = defaultdict(float)
        self.phase = "calm"

    def on_event(self, client: str, event: Event) -> None:
        if event.name in {"message", "gap"} and (body := json.loads(event.data)).get(
            "device", ""
        ).startswith(LIAR):
            return
        if event.name == "message" and body.get("device") in AGENTS and "query" not in body:
            self.oldest_s[self.phase] = max(
                self.oldest_s[self.phase], time.time() - body["t"] / 1000
            )
        super().on_event(client, event)


def publish_fleet(port: int, ledger: Ledger, devices: int) -> None:
    """Every device publishes its readings with QoS 1; returns when all are PUBACKed."""
    rng = random.Random(2)
    plan: list[list[Reading]] = [[] for _ in range(CONNECTIONS)]
    for n in range(1, READINGS_EACH + 1):
        for i in range(devices):
            plan[i % CONNECTIONS].append(Reading(f"m-{i:05}", n, 0, rng.randint(-800, 800) / 8))
    threads = [
        threading.Thread(target=_publish, args=(port, k, part, ledger), name=f"fleet-{k}")
        for k, part in enumerate(plan)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _publish(port: int, number: int, readings: list[Reading], ledger: Ledger) -> None:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, f"fleet-{number}", protocol=mqtt.MQTTv5)
    client.max_inflight_messages_set(IN_FLIGHT)
    client.max_queued_messages_set(0)
    client.connect("127.0.0.1", port)
    client.loop_start()
    waiting = []
    for each in readings:
        reading = Reading(each.device, each.n, time.time_ns() // 1_000_000, each.value)
        ledger.put(reading)
        body = json.dumps(
            {"t": reading.t_ms, "seq": reading.n, "n": reading.n, "value": reading.value}
        )
        waiting.append(client.publish(f"ew/v1/{reading.device}/up/{STREAM}", body, qos=1))
        if len(waiting) > IN_FLIGHT:
            waiting.pop(0).wait_for_publish(DRAIN_S)
    for message in waiting:
        message.wait_for_publish(DRAIN_S)
        assert message.is_published()
    client.disconnect()
    client.loop_stop()


def lie(port: int, stop: threading.Event) -> int:
    """Publish everything that a device can get wrong until told to stop; how many messages that
    were.
    """
    rng = random.Random(3)
    client = mqtt.Client(CallbackAPIVersion.VERSION2, LIAR, protocol=mqtt.MQTTv5)
    client.connect("127.0.0.1", port)
    client.loop_start()
    count = 0
    while not stop.is_set():
        for topic, body in _lies(rng, count):
            client.publish(topic, body, qos=1).wait_for_publish(30)
            count += 1
    client.disconnect()
    client.loop_stop()
    return count


def _lies(rng: random.Random, turn: int) -> Iterator[tuple[str, bytes]]:
    up, now = f"ew/v1/{LIAR}/up/{STREAM}", time.time_ns() // 1_000_000
    yield up, b'{"n": "one", "value": "high"}'
    yield (
        up,
        json.dumps(
            {"t": now + 31_536_000_000, "seq": turn * 10 + 1, "n": 1, "value": 1.0}
        ).encode(),
    )
    yield up, json.dumps({"t": 0, "seq": 2**53 - 1, "n": 1, "value": 1.0}).encode()
    yield up, json.dumps({"t": now, "seq": rng.randint(1, 50), "n": 1, "value": 1.0}).encode()
    frame = {
        "v": 1,
        "epoch": rng.randint(1, 2**31),
        "frame": rng.randint(1, 10**6),
        "seq": rng.randint(1, 10**9),
        "t": [now],
        "value": [1.0],
        "n": [1],
    }
    yield up, json.dumps(frame).encode()
    yield up, json.dumps({"t": now, "n": 1, **{f"field_{turn}_{i}": 1 for i in range(50)}}).encode()
    yield f"ew/v1/{LIAR}/up/s_{rng.randint(0, 10**9)}", b'{"x": 1}'
    yield f"ew/v1/{LIAR}/up/{QUERY}", b'{"device": "agent-a", "total": 1}'
    yield f"ew/v1/{LIAR}/up/part_status", b'{"part": "bridge-1", "state": "failed"}'
    yield up, rng.randbytes(200)


async def storm(system: System, clients: int) -> int:
    """Clients that open a stream, each with a filter of its own, and drop it within 50 ms; how many
    got as far as an answer.
    """
    rng = random.Random(4)
    limit = asyncio.Semaphore(100)

    async def one(number: int) -> bool:
        async with limit:
            host, port = system.servers[number % len(system.servers)]
            reader, writer = await asyncio.open_connection(host, port)
            path = f"/v1/events?stream={STREAM}&from=earliest&where=n%20%3E%20{number}"
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
            answered = False
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(rng.uniform(0, 0.05)):
                    answered = bool(await reader.read(100))
            writer.transport.abort()
            return answered

    return sum(await asyncio.gather(*(one(number) for number in range(clients))))


def open_streams(system: System) -> int:
    """Streams that all access servers count as open."""
    total = 0.0
    for host, port in system.servers:
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        total += sum(
            float(line.split()[1]) for line in lines if line.startswith("edgewake_access_clients ")
        )
    return int(total)


async def run(folder: Path, devices: int, clients: int) -> bool:
    """One run; is the verdict clean?"""
    ledger = Ledger()
    watch = Watch(ledger)
    async with System(folder, agents=AGENTS, stream=STREAM, bridges=3) as system:
        system.register(QUERY, SQL)
        feeder = Feeder(
            ledger, {agent: system.input_file(agent) for agent in AGENTS}, per_second=PER_SECOND
        )
        await system.start(
            "access-1",
            "access-2",
            "analysis",
            "sequencer",
            "bridge-1",
            "bridge-2",
            "bridge-3",
            *AGENTS,
        )
        feeding = asyncio.create_task(feeder.run(), name="feeder")
        raw = [
            Follower(f"raw-{i}", system.servers[i:] + system.servers[:i], [STREAM], watch.on_event)
            for i in range(2)
        ]
        both = Follower("both", system.servers, [STREAM, QUERY], watch.on_event)
        for follower in (*raw, both):
            follower.wake()
        await system.until(
            lambda: all(ledger.deliveries[f.name] for f in (*raw, both)) and ledger.windows["both"],
            "all are shown something",
        )
        print("calm: agents, bridges and clients run")
        watch.phase, stop = "bad weather", threading.Event()
        liar = asyncio.create_task(asyncio.to_thread(lie, system.mqtt_port, stop))
        fleet = asyncio.create_task(
            asyncio.to_thread(publish_fleet, system.mqtt_port, ledger, devices)
        )
        await system.until(
            lambda: len(ledger.readings) > devices // 2,
            "half of a round of the fleet is out",
            timeout_s=DRAIN_S,
        )
        faults = [system.kill("bridge-2"), system.kill("bridge-3")]
        print(f"killed for good: {[fault.target for fault in faults]}")
        answered = await storm(system, clients)
        print(f"storm: {clients} clients opened and dropped, {answered} of them after a first byte")
        began = time.monotonic()
        async with asyncio.timeout(DRAIN_S):
            await fleet
        print(
            f"fleet: {devices} devices, {devices * READINGS_EACH} readings PUBACKed "
            f"({time.monotonic() - began:.0f} s after the storm)"
        )
        stop.set()
        print(f"liar: {await liar} messages")
        watch.phase = "after"
        feeder.stop()
        await feeding
        for name in ("raw-0", "raw-1", "both"):
            await system.until(
                lambda name=name: not ledger.missing(name),
                f"{name} has every reading",
                timeout_s=DRAIN_S,
                every_s=1,
            )
        await system.until(
            lambda: not ledger.unfinished_windows("both", WINDOW_MS),
            "every window is whole",
            timeout_s=DRAIN_S,
            every_s=2,
        )
        await system.until(
            lambda: open_streams(system) == 3, "the storm left no open stream behind", timeout_s=60
        )
        for follower in (*raw, both):
            await follower.sleep()
    _without_liar(ledger)
    verdict = ledger.judge(
        raw_clients=["raw-0", "raw-1", "both"], window_clients=["both"], window_ms=WINDOW_MS
    )
    # Bridges share a plain device's messages out among them; only frames of agents are put back
    # into order.
    of_plain = [sentence for sentence in verdict.disorder if " m-" in sentence]
    verdict.disorder = [sentence for sentence in verdict.disorder if sentence not in set(of_plain)]
    print(
        "\nplain devices' readings that overtook each other (order is promised to agents only): "
        f"{len(of_plain)}"
    )
    print(
        f"readings put in {len(ledger.readings)}, gaps reported "
        f"{sum(map(len, ledger.gaps.values()))}, open streams left behind 0"
    )
    for phase, seconds in watch.oldest_s.items():
        print(f"oldest reading of an agent when shown, {phase}: {seconds:.1f} s")
    print(f"verdict: {'clean' if verdict.clean else 'NOT CLEAN'}\n{verdict}")
    return verdict.clean


def _without_liar(ledger: Ledger) -> None:
    for client, rows in ledger.windows.items():
        ledger.windows[client] = [row for row in rows if not row.device.startswith(LIAR)]


def main() -> None:
    """`python -m tests.story.bad_weather`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--devices", type=int, default=20_000, help="plain devices beside the agents"
    )
    parser.add_argument("--clients", type=int, default=1_000, help="clients of the storm")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bad-weather-") as folder:
        sys.exit(0 if asyncio.run(run(Path(folder), asked.devices, asked.clients)) else 1)


if __name__ == "__main__":
    main()
