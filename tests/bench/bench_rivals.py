"""Three ways from a device's local broker to the cloud's, through one outage: our agent,
ThingsBoard's gateway, Mosquitto as a bridge.

`python -m tests.bench.bench_rivals [--runs 1] [--rate 100] [--seconds 30] [--json FILE]`. Readings
of three fields are published with QoS 1 to a Mosquitto on the device, evenly; *accepted* is what it
confirmed. From there each carries them to a second Mosquitto, the cloud's, by a proxy which for the
middle of the run passes on nothing, without closing a connection, as when a radio link is gone;
then it is whole again. In the middle of the outage the carrier is killed with -9 and started again.
*Lost* was accepted after its first reading had come, and never came; *twice* came more than once to
whoever subscribes in the cloud (for the agent: after its frames' numbers were looked at, as the
sequencer does). *Drain*: from the end of the outage to the last of what waited then and came.
Memory: the largest resident size, with children. All on one machine, plain TCP, one after the
other.

Settings, the best that their documents offer for not losing: agent as it comes. Gateway: storage
`sqlite`, its session at the local broker kept (no clean start), QoS 1, no delay between packs, rate
limits off; installed by pip into an environment of its own. Bridge: persistence with a snapshot a
second, no bound of its queue, no clean session, QoS 1, MQTT 3.1.1 (in MQTT 5 its version
2.0.11, without a bound in flight, sends a receive maximum of 0, which every broker refuses).
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import mqtt5
import orjson
import psutil

from edgewake.protocol.mqtt import PacketReader
from tests.bench.carriers import (
    ANSWERED,
    ASKED,
    NO_LIMITS,
    TOPIC,
    Carrier,
    agent,
    bridge,
    gateway,
    install_gateway,
)
from tests.bench.figures import Found, rss_mib, run
from tests.edge.peer import Peer
from tests.services import run_mosquitto

QUIET_S: Final = 15.0
"""Nothing new for so long: what is missing is lost."""
START_S: Final = 60.0
DRAIN_S: Final = 90.0
UNACKED_MAX: Final = 100


@dataclass
class Radio:
    """A TCP proxy that can stop to pass on anything, and says nothing of it."""

    target: int
    port: int = 0
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    connections: set[asyncio.Task[None]] = field(default_factory=set)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection came."""
        connection = asyncio.create_task(self.serve(reader, writer))
        self.connections.add(connection)
        connection.add_done_callback(self.connections.discard)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            await self.is_open.wait()
            answers, upstream = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        self.writers |= {writer, upstream}
        await asyncio.gather(self._copy(reader, upstream), self._copy(answers, writer))
        self.writers -= {writer, upstream}

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(65_536):
                if not self.is_open.is_set():
                    await self.is_open.wait()
                    break  # what was on its way is gone, and the connection with it
                writer.write(piece)
                await writer.drain()
        writer.transport.abort()


@asynccontextmanager
async def radio_to(target: int) -> AsyncIterator[Radio]:
    """One that works."""
    radio = Radio(target)
    radio.is_open.set()
    server = await asyncio.start_server(radio.accept, "127.0.0.1", 0)
    radio.port = server.sockets[0].getsockname()[1]
    try:
        yield radio
    finally:
        server.close()
        radio.is_open.set()
        for writer in tuple(radio.writers):
            writer.transport.abort()
        await asyncio.gather(*radio.connections, return_exceptions=True)


class Client(asyncio.Protocol):
    """An MQTT client of the bench: publishes numbered readings until each is confirmed, or collects
    what comes.
    """

    def __init__(self, port: int, *, collects: Callable[[str, bytes], None] | None = None) -> None:
        self._port, self._collects = port, collects
        self._reader = PacketReader()
        self._transport: asyncio.Transport | None = None
        self.ready = asyncio.Event()
        self.unacked: dict[int, int] = {}
        self.accepted: set[int] = set()
        self._packet_id = 0
        self._began_ms = int(time.time() * 1000)
        """Each reading has a time of its own: the gateway lets the last of a millisecond win."""

    async def connect(self) -> None:
        """Until it is."""
        while not self.ready.is_set():
            self._reader = PacketReader()
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.get_running_loop().create_connection(
                    lambda: self, "127.0.0.1", self._port
                )
                async with asyncio.timeout(5):
                    await self.ready.wait()
                return
            await asyncio.sleep(0.1)

    def publish(self, n: int) -> None:
        """With QoS 1; it is accepted when the broker confirms it."""
        self._packet_id = self._packet_id % 65_000 + 1
        self.unacked[self._packet_id] = n
        payload = orjson.dumps(
            {"n": n, "ts": self._began_ms + n, "speed_kmh": 50 + n % 17, "state": "moving"}
        )
        self._write(
            mqtt5.PublishPacket(
                TOPIC, payload, qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=self._packet_id
            )
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._write(
            mqtt5.ConnectPacket(f"bench-{self._port}-{self._collects is None}", clean_start=True)
        )

    def connection_lost(self, error: Exception | None) -> None:
        self.ready.clear()

    def data_received(self, data: bytes) -> None:
        for packet in self._reader.feed(data):
            match packet:
                case mqtt5.ConnAckPacket():
                    if self._collects is None:
                        self.ready.set()
                    else:
                        self._write(
                            mqtt5.SubscribePacket(
                                1, [mqtt5.TopicFilter("#", max_qos=mqtt5.QoS.AT_LEAST_ONCE)]
                            )
                        )
                case mqtt5.SubAckPacket():
                    self.ready.set()
                case mqtt5.PubAckPacket():
                    self.accepted.add(self.unacked.pop(packet.packet_id))
                case mqtt5.PublishPacket():
                    if packet.packet_id is not None:
                        self._write(mqtt5.PubAckPacket(packet.packet_id))
                    assert self._collects is not None
                    self._collects(packet.topic, packet.payload)
                    if packet.topic.startswith(ASKED):
                        self._write(
                            mqtt5.PublishPacket(
                                ANSWERED + packet.topic.removeprefix(ASKED), orjson.dumps(NO_LIMITS)
                            )
                        )

    def close(self) -> None:
        """Without a word."""
        if self._transport is not None:
            self._transport.abort()

    def _write(
        self,
        packet: mqtt5.ConnectPacket
        | mqtt5.SubscribePacket
        | mqtt5.PubAckPacket
        | mqtt5.PublishPacket,
    ) -> None:
        assert self._transport is not None
        self._transport.write(packet.write())


@dataclass
class Outcome:
    """What came of one run."""

    accepted: set[int]
    came: Counter[int]
    memory_mib: float
    drain_s: float


async def publish(client: Client, rate: int, over: asyncio.Event) -> None:
    """Evenly until it is over; what a broker that died had not confirmed is published again."""
    begin_s, count = time.monotonic(), 0
    while not over.is_set() or client.unacked:
        if not client.ready.is_set():
            again, client.unacked = list(client.unacked.values()), {}
            await client.connect()
            for n in again:
                client.publish(n)
        due = int((time.monotonic() - begin_s) * rate)
        while (
            not over.is_set()
            and count < due
            and len(client.unacked) < UNACKED_MAX
            and client.ready.is_set()
        ):
            client.publish(count)
            count += 1
        await asyncio.sleep(0.01)


async def through_an_outage(
    carrier: Carrier,
    radio: Radio,
    client: Client,
    came: Callable[[], Counter[int]],
    rate: int,
    seconds: float,
) -> Outcome:
    """A fifth of the time whole, three fifths cut with a kill in the middle, the rest whole, then
    until nothing comes any more.
    """
    memory: list[float] = []
    over = asyncio.Event()

    async def watch() -> None:
        while True:
            with contextlib.suppress(psutil.NoSuchProcess):
                memory.append(rss_mib(carrier.process.pid, family=True))
            await asyncio.sleep(0.5)

    watching = asyncio.create_task(watch())
    publishing = asyncio.create_task(publish(client, rate, over))
    async with asyncio.timeout(START_S):
        while not came():
            await asyncio.sleep(0.1)
    first = min(came())  # what was published before the carrier had subscribed is nobody's
    await asyncio.sleep(seconds / 5)
    radio.is_open.clear()
    await asyncio.sleep(seconds * 0.3)
    carrier.process.kill()
    await asyncio.sleep(1)
    carrier.process.start()
    await asyncio.sleep(seconds * 0.3)
    radio.is_open.set()
    ending = asyncio.create_task(_end_after(seconds / 5, over))
    drain_s = await drained(lambda: {n for n in client.accepted if n >= first}, came, publishing)
    await ending
    watching.cancel()
    return Outcome({n for n in client.accepted if n >= first}, came(), max(memory), drain_s)


async def _end_after(seconds: float, over: asyncio.Event) -> None:
    await asyncio.sleep(seconds)
    over.set()


async def drained(
    accepted: Callable[[], set[int]],
    came: Callable[[], Counter[int]],
    publishing: asyncio.Task[None],
) -> float:
    """Wait until all has come, or nothing comes any more; the seconds until the last of what waited
    now had come.
    """
    begin_s = drained_s = news_s = time.monotonic()
    waiting, known = accepted() - came().keys(), 0
    while not publishing.done() or not accepted() <= came().keys():
        await asyncio.sleep(0.2)
        now_s, arrived = time.monotonic(), came()
        left = waiting - arrived.keys()
        if left != waiting:
            waiting, drained_s = left, now_s
        if len(arrived) > known:
            known, news_s = len(arrived), now_s
        if publishing.done() and (now_s - news_s > QUIET_S or now_s - begin_s > DRAIN_S):
            break
    await publishing
    return drained_s - begin_s


async def one_run(
    make: Callable[[Path, int], AbstractContextManager[Carrier]],
    folder: Path,
    rate: int,
    seconds: float,
) -> tuple[str, Outcome]:
    """One carrier through the outage."""
    (folder / "device").mkdir(parents=True)
    with run_mosquitto(folder / "cloud") as cloud:
        async with radio_to(cloud.port) as radio:
            with make(folder / "device", radio.port) as carrier:
                came: Counter[int] = Counter()
                async with contextlib.AsyncExitStack() as stack:
                    count: Callable[[], Counter[int]] = lambda: came  # noqa: E731
                    if carrier.name == "edgewake agent":
                        peer = await stack.enter_async_context(Peer(cloud.port))
                        count = lambda: Counter(  # noqa: E731
                            row["n"] for row in peer.kept.readings("bench", "speed")
                        )  # type: ignore[misc]
                    else:
                        collector = Client(
                            cloud.port,
                            collects=lambda _topic, payload: came.update(carrier.numbers(payload)),
                        )
                        await collector.connect()
                        stack.callback(collector.close)
                    client = Client(carrier.local_port)
                    stack.callback(client.close)
                    await client.connect()
                    return carrier.name, await through_an_outage(
                        carrier, radio, client, count, rate, seconds
                    )


LIMITS: Final = """
The radio that goes without a word is what tells them apart: what a carrier takes for sent in those
seconds is in nobody's hands. The bridge keeps its queue in memory and writes it down once a second
(`autosave_interval`), so a kill costs it what came since. The gateway takes a reading out of its
store a second after its MQTT client has it, confirmed or not (its issue 2157), and a kill costs it
all of those. It also lets the last of several readings of one millisecond win; these have a time
each. To a broker that is no ThingsBoard it sends nothing until its first question, for limits, is
answered: the bench answers that there are none.
"""


def measure(folder: Path, runs: int, rate: int = 100, seconds: int = 30) -> Found:
    """All figures, and what could not be had."""
    found: Found = defaultdict(list)
    carriers: list[Callable[[Path, int], AbstractContextManager[Carrier]]] = [agent, bridge]
    try:
        python = install_gateway(folder / "gateway")
        carriers.append(lambda into, cloud: gateway(python, into, cloud))
    except (subprocess.SubprocessError, OSError) as error:
        print(
            f"thingsboard-gateway could not be had: {getattr(error, 'stderr', b'') or error!r}",
            file=sys.stderr,
        )
    for i in range(runs):
        for at, make in enumerate(carriers):
            name, outcome = asyncio.run(one_run(make, folder / f"{i}-{at}", rate, seconds))
            if make is agent:
                assert outcome.accepted == outcome.came.keys() & outcome.accepted, "the agent lost"
                assert set(outcome.came.values()) == {1}, "the agent told twice"
            for what, value, unit in (
                ("accepted", len(outcome.accepted), "readings"),
                ("delivered", len(outcome.accepted & outcome.came.keys()), "readings"),
                ("lost", len(outcome.accepted - outcome.came.keys()), "readings"),
                ("twice", sum(count - 1 for count in outcome.came.values()), "readings"),
                ("memory at most", outcome.memory_mib, "MiB"),
                ("outage's end to the last of its backlog", outcome.drain_s, "s"),
            ):
                found[f"rivals: {name}: {what}", unit, None].append(value)
    return found


if __name__ == "__main__":
    run(measure, __doc__, sizes={"rate": 100, "seconds": 30})
