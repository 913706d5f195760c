"""What a mapped message costs the bridge beside a plain one: processor time of a real bridge, with
a real broker and a real Kafka.

`python -m tests.bench.bench_maps [--runs 3] [--json FILE]`. The same five fields and time, once as
a plain device sends them on `ew/v1/<device>/up/<stream>`, once as Zigbee2MQTT does on a topic of
the preset. One publisher, QoS 1, 500 in flight; a message counts when Kafka has it. The first round
of each is not counted. `maps alone` is one call of the rules, without the bridge.

What bounds it is not the rules (a quarter of the difference), but that a mapped message is two in
the bridge: the broker's, which is acknowledged when all its readings have arrived, and each
reading, which has a delivery and an account of its own, and is written as JSON that the check of
plain messages then reads.
"""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import Final

import orjson
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from edgewake.protocol.maps.applying import apply
from edgewake.protocol.maps.compiling import compile_presets
from tests.bench.figures import Found, cpu_s, run
from tests.bridge.running import World
from tests.services import Mosquitto, run_kafka, run_mosquitto, wait_until

MESSAGES: Final = 10_000
DEVICES: Final = 50
INFLIGHT: Final = 500
REPEATS: Final = 5_000
RATIO_MAX: Final = 1.5
T0: Final = 1_790_000_000_000
ACKED: Final = 'edgewake_bridge_messages_total{outcome="acked"}'
VALUES: Final = {"battery": 91, "humidity": 48.3, "linkquality": 120, "temperature": 21.44}


def measure(folder: Path, runs: int) -> Found:
    """All figures."""
    found: Found = defaultdict(list)
    with run_kafka(folder / "kafka") as node, run_mosquitto(folder / "broker") as broker:
        here = World(broker, node, folder)
        process = here.bridge("bench-maps", mqtt='[maps]\npresets = ["zigbee2mqtt"]')
        pid = process.pid
        try:
            for number in range(runs + 1):
                plain = _round(here, pid, "ew/v1/plain-{}/up/bench_plain", "t")
                mapped = _round(here, pid, "zigbee2mqtt/mapped-{}", "last_seen")
                if number == 0:
                    continue
                found["bridge, plain message", "µs", None].append(plain)
                found["bridge, mapped message", "µs", None].append(mapped)
                found["mapped, of a plain one", "x", RATIO_MAX].append(mapped / plain)
                found["maps alone", "µs", None].append(_alone())
        finally:
            here.stop()
    return found


def _round(here: World, pid: int, topic: str, time_field: str) -> float:
    """µs of the bridge's processor time for a message."""
    before, used_s = here.metric("bench-maps", ACKED), cpu_s(pid)
    _publish(here.broker, topic, time_field)
    wait_until(
        lambda: here.metric("bench-maps", ACKED) >= before + MESSAGES, "Kafka has all of them"
    )
    return (cpu_s(pid) - used_s) / MESSAGES * 1e6


def _publish(broker: Mosquitto, topic: str, time_field: str) -> None:
    client = Client(CallbackAPIVersion.VERSION2, f"bench-{time_field}")
    client.max_inflight_messages_set(INFLIGHT)
    client.connect(broker.host, broker.port)
    client.loop_start()
    for number in range(MESSAGES):
        body = {**VALUES, time_field: T0 + number}
        last = client.publish(topic.format(number % DEVICES), orjson.dumps(body), qos=1)
    last.wait_for_publish()
    client.loop_stop()
    client.disconnect()


def _alone() -> float:
    maps = compile_presets(["zigbee2mqtt"])
    payload = orjson.dumps({**VALUES, "last_seen": T0})
    begin_s = time.process_time()
    for _ in range(REPEATS):
        apply(maps, "zigbee2mqtt/mapped-1", payload, T0)
    return (time.process_time() - begin_s) / REPEATS * 1e6


if __name__ == "__main__":
    run(measure, __doc__)
