"""How many messages a second a whole intake carries: devices, broker, bridge, Kafka and the
sequencer, all on this machine, at once.

Method: 50 devices keep a window in flight each, together as much as a bridge takes from its broker
(4000 messages), so that more is offered than is taken; a message counts when its end-to-end
acknowledgement is back at its device; the rate is that of all messages from the first publish to
the last acknowledgement, while the sequencer runs. All parts are warm: the first rounds, in which
Kafka's JVM compiles, are not counted. Processor time is each process's own, per message; `load` is
that of the devices.

Completeness: each run then waits until the sequencer has passed everything on, and fails unless
ew.up grew by exactly what was acknowledged and ew.s.* holds each message of each device once.

Walls, beside it: the broker with a subscriber that only acknowledges, and Kafka with the same
records from one producer that checks and answers nothing, spread over the 64 partitions of a topic
like ew.up. A lone message: one device that sends the next when the last one is acknowledged.

Frames: of 100 readings, as a device of 500 readings a second sends them (its log gathers for 200
ms), and as an agent at full load or with a backlog forms them, taken from the event log of a real
one with its defaults; their size is among the figures.

Rivals: mq-bridge, which checks nothing and answers no device. Fluent Bit is not compared: what
ordinary package registries have of it is the source of 1.8 in an npm package, and its MQTT input is
no subscriber but a server of its own for MQTT 3.1.1, which confirms a QoS 1 message before it is
stored anywhere.

`python -m tests.bench.bench_bridge [--runs 3] [--json FILE]`.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import uvloop
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from confluent_kafka.admin import NewTopic

from edgewake.cloud.kafka import clients, metadata, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.offsets import watermarks
from edgewake.protocol import topics
from tests.bench import ack_only
from tests.bench.figures import Found, cpu_s, percentile, rss_mib, run
from tests.bench.load import Load, Message, agent_messages, frame_messages, reading_messages
from tests.sequencer.progress import Progress
from tests.services import Kafka, Mosquitto, Process, part, run_kafka, run_mosquitto, wait_until

LIMITS: Final = """
The goals of 60,000 one-reading messages and 1.5 million readings in frames a second are not met by
two cores that devices, broker, Kafka, bridge and sequencer share. What two cores carry is 2 s
divided by the processor time in all. Of a message of one reading, bridge and sequencer use about
two thirds; both spend it in Python, spread over dozens of steps, none of which is more than a
tenth. Neither the broker nor Kafka is the wall: the broker needs 5 µs for it, and Kafka a tenth of
what it takes here where one producer fills its batches. With a core each, a bridge passes on about
1 s divided by its own processor time, and further bridges and sequencers share the work. A frame of
100 readings costs what inflating, checking and copying 3.6 KB cost, four times; the larger frames
of a device at full load cost each reading a fifth less.
With QoS 1 a message is six packets instead of two, which is the broker's wall: agents may send with
`uplink.qos = 0`.
"""
DEVICES: Final = 50
FRAMES: Final = 500
READING_MESSAGES: Final = 4000
LONE_MESSAGES: Final = 500
WINDOW_FRAMES: Final = 20
WINDOW_READINGS: Final = 80
AGENT_FRAMES: Final = 200
WINDOW_AGENT_FRAMES: Final = 8
"""Frames in flight of an agent at full load: what `uplink.inflight_bytes_max` allows is a multiple,
but 50 of them share one bridge."""
VISIBLE_S: Final = 30.0
"""How long a confirmed transaction may take until its records can be read."""
KAFKA_RECORDS: Final = 1_000_000
READY: Final = '"event":"part.ready"'
QOS: Final = {1: "QoS 1, one answer a message", 0: "QoS 0, joined answers"}
FLOORS: Final = {("messages", 1): 25_000.0, ("frames", 1): 6_000.0}
"""Messages a second that the figures must reach."""
READINGS_FLOORS: Final = {("agent", 0): 1_500_000.0}
"""Readings a second in frames."""


@dataclass
class Site:
    """What runs, and whose processor time is counted."""

    broker: Mosquitto
    node: Kafka
    config: KafkaConfig
    progress: Progress
    pids: Mapping[str, int]

    def used_s(self) -> dict[str, float]:
        """Processor seconds so far, of each."""
        return {name: cpu_s(pid) for name, pid in self.pids.items()}


@dataclass(frozen=True)
class Kind:
    """What the devices send; `key` as a part of names."""

    key: str
    name: str
    messages: Sequence[Message]
    window: int
    unit: str = "frames"

    @property
    def readings(self) -> int:
        """What one device sends."""
        return sum(message.readings for message in self.messages)


def measure(folder: Path, runs: int) -> Found:
    """Start what is needed, run, and stop it again."""
    found: Found = defaultdict(list)
    kinds = (
        Kind(
            "messages", "messages", reading_messages(READING_MESSAGES), WINDOW_READINGS, "messages"
        ),
        Kind("frames", "frames", frame_messages(FRAMES), WINDOW_FRAMES),
        Kind(
            "agent",
            "frames of an agent at full load",
            agent_messages(folder / "agent", AGENT_FRAMES),
            WINDOW_AGENT_FRAMES,
        ),
    )
    full = kinds[-1]
    found[f"{full.name}: readings in one", "readings", None].append(
        full.readings / len(full.messages)
    )
    found[f"{full.name}: size of one", "bytes", None].append(
        statistics.mean(len(message.payload) for message in full.messages)
    )
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(run_mosquitto(folder / "mosquitto"))
        node = stack.enter_context(run_kafka(folder / "kafka"))
        config = KafkaConfig(bootstrap=node.bootstrap)
        topic_admin.ensure_topics(config, [topics.UP, topics.SEQUENCE])
        progress = Progress(config)
        stack.callback(progress.close)
        with _ours(folder, broker, node) as (bridge, sequencer):
            pids = {
                "broker": broker.process.pid,
                "Kafka": node.process.pid,
                "bridge": bridge.pid,
                "sequencer": sequencer.pid,
            }
            site = Site(broker, node, config, progress, pids)
            for kind in kinds:
                for qos in QOS:
                    _one(site, kind, qos, f"warm{kind.key}{qos}", defaultdict(list))
            for i in range(runs):
                for kind in kinds:
                    for qos in QOS:
                        _one(site, kind, qos, f"{kind.key}{qos}r{i}", found)
                _lone(site, kinds[0], f"lone{i}", found)
            found["bridge: resident memory", "MiB", None].append(rss_mib(bridge.pid))
            found["sequencer: resident memory", "MiB", None].append(rss_mib(sequencer.pid))
        # A broker of their own: on ours the bridge's session is still dealt its share.
        other = stack.enter_context(run_mosquitto(folder / "other-mosquitto"))
        for i in range(runs):
            for qos in QOS:
                _wall(folder, other, kinds[0], qos, i, found)
            _kafka_wall(node, i, found)
            _rival(folder, other, node, kinds[0], i, found)
    return found


@contextlib.contextmanager
def _ours(folder: Path, broker: Mosquitto, node: Kafka) -> Iterator[tuple[Process, Process]]:
    with contextlib.ExitStack() as stack:
        parts = []
        for name, text in (("bridge", f"[mqtt]\nport = {broker.port}\n"), ("sequencer", "")):
            config = folder / f"{name}.toml"
            config.write_text(f'name = "{name}-1"\n{text}[kafka]\nbootstrap = "{node.bootstrap}"\n')
            process = stack.enter_context(part(name, config, folder / f"{name}.log"))
            process.wait_for(READY)
            parts.append(process)
        yield parts[0], parts[1]


def _one(site: Site, kind: Kind, qos: int, run: str, found: Found) -> None:
    """One kind of message once, and the proof that nothing is missing or there twice."""
    load = Load(site.broker.port, f"b_{run}", run, DEVICES, kind.window, kind.messages, qos)
    count = DEVICES * len(kind.messages)
    before, up_before = site.used_s(), sum(site.progress.ends().values())
    own = time.process_time()
    took_s = uvloop.run(load.go())
    own = time.process_time() - own
    assert load.acknowledged == count
    goal = sum(site.progress.ends().values())
    assert goal - up_before == count, (
        f"ew.up grew by {goal - up_before} for {count} acknowledged messages"
    )
    wait_until(
        lambda: site.progress.done() >= goal,
        "the sequencer has passed on everything",
        timeout_s=300,
    )
    used = {name: used - before[name] for name, used in site.used_s().items()} | {"load": own}
    _check_sequenced(
        site.config,
        topics.stream_topic(load.stream),
        {f"{run}-{i}": len(kind.messages) for i in range(DEVICES)},
    )
    name = f"{kind.name}, {QOS[qos]}"
    found[name, f"{kind.unit}/s", FLOORS.get((kind.key, qos))].append(count / took_s)
    if kind.unit == "frames":
        found[f"readings in {name}", "readings/s", READINGS_FLOORS.get((kind.key, qos))].append(
            DEVICES * kind.readings / took_s
        )
    for percent in (50, 99):
        found[f"{name}: acknowledged, p{percent}, full window", "ms", None].append(
            percentile(load.latencies_s, percent) * 1000
        )
    for who, seconds in used.items():
        found[f"{name}: processor time of {who}", "µs", None].append(seconds / count * 1e6)
    found[f"{name}: processor time in all", "µs", None].append(sum(used.values()) / count * 1e6)


def _check_sequenced(config: KafkaConfig, topic: str, expected: Mapping[str, int]) -> None:
    """Fails unless the topic holds so many records of each device.

    Kafka confirms a transaction before its last records can be read, so what is missing may come a
    moment later. What is there twice stays.
    """
    per_device: Counter[str] = Counter()
    deadline = time.monotonic() + VISIBLE_S
    while per_device.total() < sum(expected.values()) and time.monotonic() < deadline:
        per_device = _sequenced(config, topic)
    wrong = {
        device: f"{per_device[device]} of {count}"
        for device, count in expected.items()
        if per_device[device] != count
    }
    assert per_device == expected, f"{topic} misses messages or has some twice: {wrong}"


def _sequenced(config: KafkaConfig, topic: str) -> Counter[str]:
    """Records of a topic by device."""
    reader = clients.consumer(
        config, "bench-count", **{"enable.partition.eof": True, "auto.offset.reset": "earliest"}
    )
    counts: Counter[str] = Counter()
    try:
        left = set(range(metadata.partition_count(reader, topic)))
        reader.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in left])
        while left:
            for message in reader.consume(10_000, 0.5):
                if message.error() is not None:
                    left.discard(message.partition())
                else:
                    counts[(message.key() or b"").decode()] += 1
    finally:
        reader.close()
    return counts


def _lone(site: Site, kind: Kind, run: str, found: Found) -> None:
    """What the gathering of records under load must not cost a device that is alone."""
    load = Load(site.broker.port, f"b_{run}", run, 1, 1, kind.messages[:LONE_MESSAGES], 0)
    uvloop.run(load.go())
    for percent in (50, 99):
        found[f"lone message, {QOS[0]}: acknowledged, p{percent}", "ms", None].append(
            percentile(load.latencies_s, percent) * 1000
        )


def _kafka_wall(node: Kafka, i: int, found: Found) -> None:
    """One-reading records spread over 64 partitions, from a producer that does nothing else."""
    topic = f"wall_{i}"
    client = clients.admin(KafkaConfig(bootstrap=node.bootstrap))
    client.create_topics(
        [NewTopic(topic, num_partitions=topics.UP_PARTITIONS, replication_factor=1)]
    )[topic].result(30)
    command = [
        sys.executable,
        "-m",
        "tests.bench.kafka_only",
        node.bootstrap,
        topic,
        str(KAFKA_RECORDS),
        str(DEVICES),
    ]
    before = cpu_s(node.process.pid)
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    used_us = (cpu_s(node.process.pid) - before) / KAFKA_RECORDS * 1e6
    found["Kafka alone: one-reading records over 64 partitions", "records/s", None].append(
        KAFKA_RECORDS / float(done.stdout)
    )
    found["Kafka alone: processor time of Kafka", "µs", None].append(used_us)


def _wall(folder: Path, broker: Mosquitto, kind: Kind, qos: int, i: int, found: Found) -> None:
    """The same load on the same broker, with a subscriber that only acknowledges: what no bridge
    can pass.
    """
    command = [sys.executable, "-m", "tests.bench.ack_only", str(broker.port)]
    with Process(command, folder / f"ack-only-{qos}-{i}.log") as subscriber:
        subscriber.wait_for(ack_only.READY)
        before = cpu_s(broker.process.pid)
        load = Load(broker.port, "wall", f"wall{qos}{i}", DEVICES, kind.window, kind.messages, qos)
        count = DEVICES * len(kind.messages)
        took_s = uvloop.run(load.go())
        used_us = (cpu_s(broker.process.pid) - before) / count * 1e6
    name = f"broker alone, {QOS[qos]}"
    found[f"{name}: processor time of broker", "µs", None].append(used_us)
    found[f"{name}: with a subscriber that only acknowledges", "messages/s", None].append(
        count / took_s
    )
    found[f"{name}: its wall, one core full", "messages/s", None].append(1e6 / used_us)


def _rival(folder: Path, broker: Mosquitto, node: Kafka, kind: Kind, i: int, found: Found) -> None:
    """mq-bridge from the same broker to the same Kafka; a message counts when it is in Kafka, for
    it answers nobody.
    """
    topic = f"rival_{i}"
    config = KafkaConfig(bootstrap=node.bootstrap)
    client = clients.admin(config)
    client.create_topics([NewTopic(topic, num_partitions=8, replication_factor=1)])[topic].result(
        30
    )
    command = [
        sys.executable,
        "-m",
        "tests.bench.rival_mq_bridge",
        str(broker.port),
        node.bootstrap,
        topic,
    ]
    count = DEVICES * len(kind.messages)
    ends = clients.consumer(config, "bench-rival")
    with Process(command, folder / f"rival-{i}.log") as rival:
        rival.wait_for("ready")
        time.sleep(2)  # it subscribes after it says so, and tells nobody when
        load = Load(
            broker.port,
            "rival",
            f"rival{i}",
            DEVICES,
            kind.window,
            kind.messages,
            wants_answers=False,
        )
        pids = {"broker": broker.process.pid, "rival": rival.pid}
        before, start = {name: cpu_s(pid) for name, pid in pids.items()}, time.perf_counter()
        uvloop.run(load.go())
        held, deadline = 0, time.perf_counter() + 60
        while held < count and time.perf_counter() < deadline:
            held = sum(watermarks(ends, topic, p)[1] for p in range(8))
        took_s = time.perf_counter() - start
        used = {name: (cpu_s(pid) - before[name]) / count * 1e6 for name, pid in pids.items()}
    ends.close()
    found["rival mq-bridge, QoS 1, no answers, unchecked: messages", "messages/s", None].append(
        held / took_s
    )
    found["rival mq-bridge: processor time of mq-bridge", "µs", None].append(used["rival"])
    found["rival mq-bridge: processor time of broker", "µs", None].append(used["broker"])
    if held != count:
        print(
            f"mq-bridge: {held} of {count} messages in Kafka after 60 s; load average "
            f"{psutil.getloadavg()[0]:.1f}"
        )


if __name__ == "__main__":
    run(measure, __doc__)
