"""What happens when the way is open again and a million readings wait: when the first comes, how
fast the rest, and what of live ones.

Method: the real agent as a process, mTLS to a real Mosquitto through a proxy, the real bridge, a
real Kafka, all with their defaults. Live readings, 100 a second, each with its number, come through
a pipe all the time. The proxy refuses every connection; a file with the readings of one or more
other streams appears beside the agent, which takes and keeps them; when the log has all of them
durably, the proxy opens. Two warm-up runs, in which the JVM compiles and the bridge learns the
streams, are not counted: with a cold JVM Kafka needs three times as much of the processors.

*Way open*: from then to the first frame of the backlog, as a consumer of ew.up sees it; the wait
for the agent's next attempt is in it (`uplink.backoff_max_s`). *Session ready*: from the agent's
SUBACK, by its log, to the same. *Drained*: the readings of the backlog, divided by the time from
the moment when its first frame was sent (`sent_at`) until the last is in Kafka, and acknowledged:
the log has none of them any more. *Live*: from the making of a reading until a consumer has it, of
all that were made while the backlog drained; "whole chain": a sequencer runs too, and the consumer
reads what it passes on, ew.s.*. Processor time: of each process from the first frame to the end of
the drain, for each reading of the backlog; `proxy and reader` is the bench's own.

Completeness: of each stream every reading is there once and in order, after the numbers of the
frames were looked at as the sequencer does, or the run fails. It also fails if anything came
through while the way was closed.

`python -m tests.bench.bench_backlog [--runs 3] [--readings 1000000] [--case NAME] [--json FILE]`
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import orjson
import psutil
from confluent_kafka import Message, TopicPartition

from edgewake.cloud.kafka import clients, metadata, offsets, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.edge import status
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.protocol import topics
from edgewake.protocol.errors import LocalError
from tests.bench.figures import Found, cpu_s, percentile, rss_mib, run
from tests.edge.mtls import broker_with_mtls, certificates
from tests.sequencer.progress import Progress
from tests.services import Kafka, Process, free_ports, part, run_kafka, wait_until
from tests.throttling_proxy import copy

LIMITS: Final = """
What drains a backlog is processor time, which agent, broker, bridge, Kafka and the bench's own
reader share: a reading takes 2.6 µs of it in all, and 4.5 µs where a sequencer passes everything on
and Kafka keeps it twice. A busy machine drains slower by what is taken from it: 215,000 to 280,000
a second beside other work at a load average of 14. A live reading waits behind the frames that are
in flight, so its wait depends on how fast these drain, in either figure; a lane of its own
(`urgent`) does not wait for them. From the opening of the way to the session the agent waits for
its next attempt, which after a long outage is half a minute at most (`uplink.backoff_max_s`), by
design: a thousand devices that lost one broker do not come back in one second.
"""
WARM_UPS: Final = 2
RATE: Final = 100
"""Live readings a second."""
SOME: Final = 100
"""Live readings that come before the way is closed, and after the drain."""
T0: Final = 1_790_000_000_000
READY: Final = '"event":"part.ready"'
DEADLINE_S: Final = 120.0
FIRST_S, LIVE_P99_MS, DRAIN_PER_S = 1.0, 1000.0, 300_000.0
"""The goals."""
AGENT: Final = """
device = "{device}"
data_dir = "{folder}/data"
[mqtt]
host = "localhost"
port = {port}
ca_file = "{certificates}/ca.pem"
cert_file = "{certificates}/device.pem"
key_file = "{certificates}/device.key"
[[source]]
type = "json_lines"
stream = "live"
lane = "{live_lane}"
"""
FILE: Final = """
[[source]]
type = "file_tail"
stream = "{stream}"
path = "{folder}/{stream}.jsonl"
lane = "{lane}"
"""


@dataclass(frozen=True)
class Case:
    """What waits, and beside what."""

    name: str
    backlogs: tuple[str, ...] = ("backlog_1",)
    lane: Lane = Lane.NORMAL
    live_lane: Lane = Lane.NORMAL
    is_sequenced: bool = False

    def topic(self, stream: str) -> str:
        """Where the consumer reads a stream."""
        return topics.stream_topic(stream) if self.is_sequenced else topics.UP


CASES: Final = (
    Case("one stream"),
    Case("bulk beside urgent", lane=Lane.BULK, live_lane=Lane.URGENT),
    Case("three streams", backlogs=("backlog_1", "backlog_2", "backlog_3")),
    Case("one stream, whole chain", is_sequenced=True),
)
"""Those with the sequencer come last: it starts when the others are done."""


@dataclass
class Site:
    """What runs for all runs."""

    folder: Path
    config: KafkaConfig
    tls_port: int
    pids: dict[str, int]
    files: Mapping[int, Path]
    """How many readings a stream has → the file with them."""


def measure(folder: Path, runs: int, readings: int = 1_000_000, case: str = "") -> Found:
    """Start what is needed, run, and stop it again. `case`: the only one."""
    found: Found = defaultdict(list)
    certificates(folder)
    with broker_with_mtls(folder) as (port, tls_port), run_kafka(folder / "kafka") as node:
        config = KafkaConfig(bootstrap=node.bootstrap)
        topic_admin.ensure_topics(config, [topics.UP, topics.SEQUENCE])
        sizes = {readings // len(one.backlogs) for one in CASES}
        files = {size: _file(folder / f"{size}.jsonl", size) for size in sizes}
        broker = _listener(tls_port)
        with _part("bridge", folder, node, f"[mqtt]\nport = {port}\n") as bridge:
            site = Site(
                folder,
                config,
                tls_port,
                {"broker": broker, "Kafka": node.process.pid, "bridge": bridge.pid},
                files,
            )
            for i in range(WARM_UPS):
                asyncio.run(_one(site, CASES[2], f"warm-{i}", readings, defaultdict(list)))
            for sequenced in (False, True):
                with _sequencer(site, node) if sequenced else contextlib.nullcontext():
                    for i in range(runs):
                        for number, one in enumerate(CASES):
                            if one.is_sequenced is sequenced and case in ("", one.name):
                                asyncio.run(_one(site, one, f"c{number}-{i}", readings, found))
    return found


def _file(path: Path, count: int) -> Path:
    with path.open("w", encoding="ascii") as file:
        for n in range(count):
            fields = (
                f'"speed":{50 + n * 7 % 997 / 10:.1f},"lat":{53 + n * 13 % 9973 / 1e5:.5f},'
                f'"lon":{-6 - n * 29 % 9973 / 1e5:.5f}'
            )
            file.write(f'{{"t":{T0 + n * 100},"n":{n},{fields}}}\n')
    return path


def _listener(port: int) -> int:
    found = [
        one.pid
        for one in psutil.net_connections("tcp")
        if one.status == psutil.CONN_LISTEN and one.laddr.port == port
    ]  # type: ignore[union-attr]
    (pid,) = found
    assert pid is not None
    return pid


@contextmanager
def _part(name: str, folder: Path, node: Kafka, text: str) -> Iterator[Process]:
    file = folder / f"{name}.toml"
    file.write_text(f'name = "{name}-1"\n{text}[kafka]\nbootstrap = "{node.bootstrap}"\n')
    with part(name, file, folder / f"{name}.log") as process:
        process.wait_for(READY)
        yield process


@contextmanager
def _sequencer(site: Site, node: Kafka) -> Iterator[None]:
    """One that has passed on all that was there."""
    with _part("sequencer", site.folder, node, "") as process:
        progress = Progress(site.config)
        wait_until(
            lambda: not progress.waiting(), "the sequencer has caught up", timeout_s=DEADLINE_S
        )
        progress.close()
        site.pids["sequencer"] = process.pid
        yield
        del site.pids["sequencer"]


@dataclass
class Door:
    """A TCP proxy on a port that refuses every connection until it is opened."""

    target: int
    port: int
    server: asyncio.Server | None = None
    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def open(self) -> None:
        """Let connections through."""
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    def shut(self) -> None:
        """Refuse new ones and cut those that there are."""
        if self.server is not None:
            self.server.close()
            self.server = None
        for writer in tuple(self.writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, upstream = await asyncio.open_connection("127.0.0.1", self.target)
        self.writers |= {writer, upstream}
        await asyncio.gather(copy(reader, upstream), copy(answers, writer))
        self.writers -= {writer, upstream}


class Reader:
    """A consumer of topics from where they end now, in a thread of its own: it notes when each
    record came, and reads none.
    """

    def __init__(self, config: KafkaConfig, names: Sequence[str]) -> None:
        self._consumer = clients.consumer(config, "bench-backlog")
        places = [
            (name, part)
            for name in names
            for part in range(metadata.partition_count(self._consumer, name))
        ]
        ends = [
            TopicPartition(name, part, offsets.watermarks(self._consumer, name, part)[1])
            for name, part in places
        ]
        self._consumer.assign(ends)
        self.came: list[tuple[float, Message]] = []
        """Wall clock in s, record."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(500, 0.02):
                assert message.error() is None, message.error()
                self.came.append((time.time(), message))

    def close(self) -> None:
        """Stop reading."""
        self._over.set()
        self._thread.join()
        self._consumer.close()


@dataclass(frozen=True)
class Seen:
    """One record, where it was read, without its readings."""

    at_s: float
    message: Message
    stream: str
    frame: int
    sent_s: float
    is_sequenced: bool


def _seen(at_s: float, message: Message) -> Seen:
    """Of the record's head, which is all that is looked at while time counts."""
    value = message.value()
    head = orjson.loads(value[: value.index(b',"seq":')] + b"}")
    return Seen(
        at_s,
        message,
        head["stream"],
        head["frame"],
        (head["sent_at"] or 0) / 1000,
        message.topic() != topics.UP,
    )


class Watch:
    """What has come of one device."""

    def __init__(self, reader: Reader, device: str, case: Case) -> None:
        self._reader, self._device, self._case = reader, device.encode(), case
        self._looked = 0
        self.seen: list[Seen] = []
        self._frames: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        """(topic, stream) → frame → its readings."""

    def look(self) -> None:
        """At what is new."""
        new = self._reader.came[self._looked :]
        self._looked += len(new)
        for at_s, message in new:
            if message.key() == self._device:
                one = _seen(at_s, message)
                self.seen.append(one)
                count = (
                    0
                    if one.is_sequenced
                    else int(dict(message.headers())["ew"].rpartition(b"|")[2])
                )
                self._frames[message.topic(), one.stream].setdefault(one.frame, count)

    def count(self, stream: str) -> int:
        """Readings of a stream that have come as far as the case asks."""
        self.look()
        in_up = self._frames[topics.UP, stream]
        far = self._frames[self._case.topic(stream), stream]
        return sum(in_up.get(frame, 0) for frame in far)

    def readings(self, stream: str, topic: str) -> list[tuple[float, dict[str, Any]]]:
        """When each came, and what it is.

        Asserts that frames and numbers have no holes and that repeats are the same.
        """
        frames: dict[int, tuple[float, dict[str, Any]]] = {}
        for one in self.seen:
            if one.stream == stream and one.message.topic() == topic:
                body = orjson.loads(one.message.value())
                known = frames.setdefault(one.frame, (one.at_s, body))[1]
                assert (known["seq"], known["fields"]) == (body["seq"], body["fields"]), (
                    f"frame {one.frame} came with two contents"
                )
                assert not (one.is_sequenced and known is not body), (
                    f"frame {one.frame} came twice from the sequencer"
                )
        assert sorted(frames) == list(range(1, len(frames) + 1)), f"{stream}: frames have holes"
        found: list[tuple[float, dict[str, Any]]] = []
        for _, (at_s, body) in sorted(frames.items()):
            assert "gap" not in body, body["gap"]
            assert body["seq"] == len(found) + 1
            names, columns = list(body["fields"]), list(body["fields"].values())
            found += [
                (at_s, dict(zip(names, values, strict=True)))
                for values in zip(*columns, strict=True)
            ]
        return found


class Live:
    """Makes a live reading every hundredth of a second, in a thread, and notes when."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self.made: list[float] = []
        """Wall clock in s, by number."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        begin_s = time.monotonic()
        while not self._over.wait(max(0.0, begin_s + len(self.made) / RATE - time.monotonic())):
            n, now_s = len(self.made), time.time()
            self.made.append(now_s)
            self._pipe.write(b'{"t":%d,"n":%d,"speed":%.1f}\n' % (now_s * 1000, n, 50 + n % 17))
            self._pipe.flush()

    def stop(self) -> None:
        """No more."""
        self._over.set()
        self._thread.join()


async def _until(
    condition: Callable[[], object],
    what: str,
    agent: subprocess.Popen[bytes],
    every_s: float = 0.02,
) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert agent.poll() is None, "the agent ended"
        assert time.monotonic() < deadline_s, f"not within {DEADLINE_S:.0f} s: {what}"
        await asyncio.sleep(every_s)


@asynccontextmanager
async def _agent(
    site: Site, case: Case, folder: Path, device: str, port: int
) -> AsyncIterator[subprocess.Popen[bytes]]:
    text = AGENT.format(
        device=device, folder=folder, port=port, certificates=site.folder, live_lane=case.live_lane
    )
    config = folder / "agent.toml"
    config.write_text(
        text
        + "".join(
            FILE.format(stream=stream, folder=folder, lane=case.lane) for stream in case.backlogs
        )
    )
    command = [sys.executable, "-m", "edgewake.deploy.cli", "agent", "--config", str(config)]
    with (folder / "agent.log").open("wb") as log:
        agent = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log)
    try:
        yield agent
    finally:
        agent.terminate()
        await asyncio.to_thread(agent.wait, 15)


async def _one(site: Site, case: Case, name: str, readings: int, found: Found) -> None:
    """One agent from its start to the end of its backlog."""
    folder, device = site.folder / name, f"bench-{name}"
    folder.mkdir()
    reader = Reader(
        site.config, dict.fromkeys([topics.UP, *map(case.topic, ("live", *case.backlogs))])
    )  # type: ignore[arg-type]
    door = Door(site.tls_port, *free_ports(1))
    try:
        async with _agent(site, case, folder, device, door.port) as agent:
            await door.open()
            assert agent.stdin is not None
            live = Live(agent.stdin)
            try:
                await _outage_and_drain(
                    site,
                    case,
                    folder,
                    readings,
                    agent,
                    door,
                    live,
                    Watch(reader, device, case),
                    found,
                )
            finally:
                live.stop()
                agent.stdin.close()
    finally:
        door.shut()
        reader.close()


async def _outage_and_drain(
    site: Site,
    case: Case,
    folder: Path,
    readings: int,
    agent: subprocess.Popen[bytes],
    door: Door,
    live: Live,
    watch: Watch,
    found: Found,
) -> None:
    each = readings // len(case.backlogs)
    total = each * len(case.backlogs)

    def log_of(what: str) -> int:
        with contextlib.suppress(LocalError):
            streams = status.read_log(folder / "data", now_ms=0)["streams"]
            return sum(streams[stream][what] for stream in case.backlogs if stream in streams)
        return 0

    await _until(lambda: watch.count("live") >= SOME, "live readings come", agent)
    door.shut()
    shut_s = time.time()
    for stream in case.backlogs:
        os.link(site.files[each], folder / f"{stream}.jsonl")
    await _until(lambda: log_of("accepted") >= total, "the backlog is kept", agent, every_s=0.2)
    kept_s = time.time()
    pids = {"agent": agent.pid, **site.pids, "proxy and reader": os.getpid()}
    open_s = time.time()
    await door.open()
    await _until(
        lambda: any(map(watch.count, case.backlogs)),
        "the first frame is in Kafka",
        agent,
        every_s=0.005,
    )
    before = {who: cpu_s(pid) for who, pid in pids.items()}
    await _until(
        lambda: sum(map(watch.count, case.backlogs)) >= total, "the backlog is in Kafka", agent
    )
    await _until(lambda: not log_of("waiting"), "the backlog is acknowledged", agent)
    end_s = time.time()
    used = {who: cpu_s(pid) - before[who] for who, pid in pids.items()}
    memory = rss_mib(agent.pid)
    made = len(live.made)
    await _until(lambda: len(live.made) >= made + SOME, "live readings go on", agent)
    live.stop()
    await _until(
        lambda: watch.count("live") >= len(live.made), "the last live reading has come", agent
    )
    ready_s = _connected_s(folder / "agent.log", after_s=open_s)
    came = _complete(watch, case, each, live)

    backlog = [one for one in watch.seen if one.stream in case.backlogs]
    assert not [one for one in watch.seen if shut_s + 1 < one.at_s < open_s], (
        "something came through while the way was closed"
    )
    first = min(one.at_s for one in backlog)
    sent_s = min(one.sent_s for one in backlog)
    last = max(one.at_s for one in backlog)
    waits_ms = [
        1000 * (at_s - made_s)
        for made_s, at_s in zip(live.made, came, strict=True)
        if ready_s <= made_s <= end_s
    ]
    after_ms = [
        1000 * (at_s - made_s)
        for made_s, at_s in zip(live.made, came, strict=True)
        if made_s > end_s
    ]
    for what, unit, bound, value in (
        ("kept durably while the way is closed", "readings/s", None, total / (kept_s - shut_s)),
        ("way open to its first frame", "s", None, first - open_s),
        ("session ready to its first frame", "s", FIRST_S, first - ready_s),
        ("drained and acknowledged", "readings/s", DRAIN_PER_S, total / (end_s - sent_s)),
        ("drained, first to last in Kafka", "readings/s", None, total / (last - sent_s)),
        ("live meanwhile, p50", "ms", None, percentile(waits_ms, 50)),
        ("live meanwhile, p99", "ms", LIVE_P99_MS, percentile(waits_ms, 99)),
        ("live meanwhile, longest", "ms", None, max(waits_ms)),
        ("live afterwards, p99", "ms", None, percentile(after_ms, 99)),
        (
            "readings in a frame",
            "readings",
            None,
            total / len({(one.stream, one.frame) for one in backlog}),
        ),
        (
            "frames that came again",
            "frames",
            None,
            sum(not one.is_sequenced for one in backlog)
            - len({(one.stream, one.frame) for one in backlog}),
        ),
        ("agent's memory after it", "MiB", None, memory),
        *(
            (f"processor time of {who}, a reading", "µs", None, seconds / total * 1e6)
            for who, seconds in used.items()
        ),
    ):
        found[f"backlog, {case.name}: {what}", unit, bound].append(value)
        print(f"  {case.name}: {what}: {value:,.2f} {unit}", file=sys.stderr, flush=True)


def _connected_s(log: Path, *, after_s: float) -> float:
    """When the agent's session was ready again, by its log."""
    times = [
        json.loads(line)["time"] / 1000
        for line in log.read_text().splitlines()
        if '"event":"uplink.connected"' in line
    ]
    assert '"event":"uplink.offline"' in log.read_text(), "the fault did not fire"
    return next(at_s for at_s in times if at_s >= after_s)


def _complete(watch: Watch, case: Case, each: int, live: Live) -> list[float]:
    """Asserts that every reading came once and in order; when each live one came."""
    for stream in case.backlogs:
        for topic in {topics.UP, case.topic(stream)}:
            assert [row["n"] for _, row in watch.readings(stream, topic)] == list(range(each)), (
                f"{topic}: {stream} is not complete"
            )
    for topic in {topics.UP, case.topic("live")}:
        rows = watch.readings("live", topic)
        assert [row["n"] for _, row in rows] == list(range(len(live.made))), (
            f"{topic}: live readings are not complete"
        )
    return [at_s for at_s, _ in watch.readings("live", case.topic("live"))]


if __name__ == "__main__":
    run(measure, __doc__, sizes={"readings": 1_000_000, "case": ""})
