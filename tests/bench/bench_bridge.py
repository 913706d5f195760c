"""How fast the bridge takes messages, acknowledged end to end, and how fast the sequencer puts them in order.

Broker, Kafka, bridge and devices share the machine. `python -m tests.bench.bench_bridge [--runs 3] [--json FILE]`
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from pathlib import Path

import uvloop

from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from tests.bench.figures import Found, cpu_s, percentile, rss_mib, run
from tests.bench.load import READINGS, Load, frame_messages, reading_messages
from tests.sequencer.progress import Progress
from tests.services import Process, part, run_kafka, run_mosquitto, wait_until

DEVICES = 50
FRAMES = 400
READING_MESSAGES = 2500
WINDOW_FRAMES = 10
WINDOW_READINGS = 40
READY = '"event":"part.ready"'


def measure(folder: Path, runs: int) -> Found:
    """Start what is needed, run, and stop it again."""
    found: Found = defaultdict(list)
    frames, readings = frame_messages(FRAMES), reading_messages(READING_MESSAGES)
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(run_mosquitto(folder / "mosquitto"))
        node = stack.enter_context(run_kafka(folder / "kafka"))
        text = f'[mqtt]\nport = {broker.port}\n[kafka]\nbootstrap = "{node.bootstrap}"\n'
        bridge = stack.enter_context(_part("bridge", folder, text))
        config = KafkaConfig(bootstrap=node.bootstrap)
        topic_admin.ensure_topics(config, [topics.UP, topics.SEQUENCE])
        progress = Progress(config)
        stack.callback(progress.close)
        _run(Load(broker.port, "bench_warm_up", "warm", 10, 10, readings[:500]))
        _sequence(folder, node.bootstrap, progress)
        for i in range(runs):
            used = cpu_s(bridge.pid)
            load = _run(Load(broker.port, "bench_frames", f"f{i}", DEVICES, WINDOW_FRAMES, frames))
            found["bridge: processor time of a frame", "µs", None].append((cpu_s(bridge.pid) - used) / (DEVICES * FRAMES) * 1e6)
            rate = DEVICES * FRAMES / load.took_s
            found["bridge: frames of 100", "frames/s", None].append(rate)
            found["bridge: readings in frames of 100", "readings/s", 600_000].append(rate * READINGS)
            _latency(found, "bridge: frame acknowledged", load)
            found["sequencer: frames of 100", "records/s", None].append(_sequence(folder, node.bootstrap, progress).rate)
            used = cpu_s(bridge.pid)
            load = _run(Load(broker.port, "bench_readings", f"r{i}", DEVICES, WINDOW_READINGS, readings))
            used_us = (cpu_s(bridge.pid) - used) / (DEVICES * READING_MESSAGES) * 1e6
            found["bridge: processor time of a message", "µs", None].append(used_us)
            found["bridge: one-reading messages", "messages/s", 25_000].append(DEVICES * READING_MESSAGES / load.took_s)
            _latency(found, "bridge: message acknowledged", load)
            found["bridge: resident memory", "MiB", None].append(rss_mib(bridge.pid))
            sequenced = _sequence(folder, node.bootstrap, progress)
            found["sequencer: one-reading records", "records/s", None].append(sequenced.rate)
            found["sequencer: processor time of a record", "µs", None].append(sequenced.cpu_us)
            found["sequencer: resident memory", "MiB", None].append(sequenced.rss_mib)
    return found


class _Run(Load):
    took_s: float = 0.0


def _run(load: Load) -> _Run:
    run = _Run(**{name: getattr(load, name) for name in ("port", "stream", "run", "devices", "window", "messages")})
    run.took_s = uvloop.run(run.go())
    return run


def _latency(found: Found, name: str, load: Load) -> None:
    for percent in (50, 99):
        found[f"{name}, p{percent}, full window", "ms", None].append(percentile(load.latencies_s, percent) * 1000)


def _part(name: str, folder: Path, text: str) -> _Started:
    config = folder / f"{name}.toml"
    config.write_text(f'name = "{name}-1"\n{text}')
    process = part(name, config, folder / f"{name}.log")
    process.start()
    seen = process.output().count(READY)
    wait_until(lambda: process.output().count(READY) > seen or not process.is_running(), f"{name} serves")
    return _Started(process)


class _Started(contextlib.AbstractContextManager[Process]):
    def __init__(self, process: Process) -> None:
        self.process = process

    def __enter__(self) -> Process:
        return self.process

    def __exit__(self, *_: object) -> None:
        assert self.process.stop() == 0, self.process.output()[-2000:]


class _Sequenced:
    rate: float
    cpu_us: float
    rss_mib: float


def _sequence(folder: Path, bootstrap: str, progress: Progress) -> _Sequenced:
    """Start the sequencer on what waits for it, until it has committed everything."""
    waiting = progress.waiting()
    goal = progress.done() + waiting
    result = _Sequenced()
    with _part("sequencer", folder, f'[kafka]\nbootstrap = "{bootstrap}"\n') as process:
        start, used = time.perf_counter(), cpu_s(process.pid)
        wait_until(lambda: progress.done() >= goal, "the sequencer has passed on everything", timeout_s=300)
        result.rate = waiting / (time.perf_counter() - start)
        result.cpu_us = (cpu_s(process.pid) - used) / waiting * 1e6
        result.rss_mib = rss_mib(process.pid)
    return result


if __name__ == "__main__":
    run(measure, __doc__)
