"""A bridge that comes back while another one empties its session: nothing is counted twice.

The messages have no number, so nobody behind the bridges could tell a repeat.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
from paho.mqtt import publish

from edgewake.protocol import topics
from edgewake.protocol.frames import record
from tests.bridge.running import World, read_some
from tests.services import PATIENCE_S, Process, free_ports, wait_until

pytestmark = pytest.mark.services
MESSAGES = 30_000
"""So many that the heir is not through as soon as it has seen that the owner is there."""
WINDOW = 8
UNACKNOWLEDGED = "edgewake_bridge_inflight_messages"


def said(process: Process, event: str) -> int:
    return process.output().count(f'"event":"{event}"')


@asynccontextmanager
async def door(
    port: int,
    target: int,
    on_hello: Callable[[bytes], None] = lambda _hello: None,
    came: asyncio.Event | None = None,
) -> AsyncIterator[None]:
    """A way to the broker.

    `on_hello` is called before what a client says first is passed on; `came`: somebody is there.
    """

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await source.read(65_536):
                sink.write(piece)
                await sink.drain()
        sink.close()

    async def serve(client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        if came is not None:
            came.set()
        hello = await client.read(65_536)
        if not hello:
            back.close()
            return
        on_hello(hello)
        answers, broker = await asyncio.open_connection("127.0.0.1", target)
        broker.write(hello)
        await asyncio.gather(copy(client, broker), copy(answers, back))

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()


async def until(condition: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(wait_until, condition, what)


async def test_a_bridge_that_comes_back_gets_its_session_without_a_repeat(here: World) -> None:
    """Kafka stands still from the moment when the heir connects to the session until the owner
    wants it: so what the heir took is certainly not acknowledged then.
    """
    broker, (own_port, other_port) = here.broker, free_ports(2)
    frozen, came, greeted = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def on_hello(hello: bytes) -> None:
        if b":b-owner" in hello and not frozen.is_set():
            here.node.process.freeze()
            frozen.set()

    async with door(own_port, broker.port):
        here.broker = replace(broker, port=own_port)
        owner = await asyncio.to_thread(here.bridge, "b-owner", inflight_messages_max=WINDOW)
        owner.kill()
    topic = topics.up("plain-hand", "handed")
    sent: list[tuple[str, bytes, int, bool]] = [
        (topic, b'{"n":%d}' % n, 1, False) for n in range(MESSAGES)
    ]
    await asyncio.to_thread(publish.multiple, sent, broker.host, broker.port)
    owner.start()
    await until(lambda: said(owner, "mqtt.lost") > 0, "it has all of Kafka, and finds no broker")
    async with door(other_port, broker.port, on_hello):
        here.broker = replace(broker, port=other_port)
        heir = await asyncio.to_thread(here.bridge, "b-heir", inflight_messages_max=WINDOW)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await frozen.wait()
            await until(lambda: here.metric("b-heir", UNACKNOWLEDGED) > 0, "some are on their way")
            async with door(own_port, broker.port, lambda _hello: greeted.set(), came):
                async with asyncio.timeout(PATIENCE_S):
                    await came.wait()
                with suppress(TimeoutError):  # without a handover it would not wait for Kafka
                    async with asyncio.timeout(1):
                        await greeted.wait()
                here.node.process.thaw()
                await read_some(here.config, topics.UP, "plain-hand", MESSAGES)
                await until(lambda: said(owner, "part.ready") == 2, "the owner serves again")
                for name in here.ports:
                    await until(
                        lambda name=name: here.metric(name, UNACKNOWLEDGED) == 0,
                        "all is acknowledged",
                    )
                found = await read_some(here.config, topics.UP, "plain-hand", MESSAGES)
                gave = [said(heir, f"bridge.{one}") for one in ("handed_back", "not_adopted")]
                assert gave == [1, 0], heir.output()[-2000:]
                await asyncio.to_thread(here.stop)
        finally:
            here.node.process.thaw()
    counts = Counter(record.decode(one.value() or b"").frame.fields["n"][0] for one in found)
    assert {n: count for n, count in counts.items() if count > 1} == {}
    assert len(counts) == MESSAGES
