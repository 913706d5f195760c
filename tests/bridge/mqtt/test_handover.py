"""A bridge that comes back while another one empties its session: nothing is counted twice.

The messages have no number, so nobody behind the bridges could tell a repeat.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import mqtt5
import pytest
from paho.mqtt import publish

from edgewake.cloud.bridge.config import MqttConfig
from edgewake.cloud.bridge.mqtt.ack_ledger import AckLedger, Delivery
from edgewake.cloud.bridge.mqtt.adoption import Adoption, Ended
from edgewake.cloud.bridge.mqtt.answers import pubacks
from edgewake.cloud.bridge.mqtt.mqtt_connection import SESSION_EXPIRY_S
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.frames import record
from edgewake.protocol.mqtt import PacketReader, Unreadable
from tests.bridge.running import World, read_some
from tests.services import PATIENCE_S, Process, free_ports, wait_until

pytestmark = pytest.mark.services
MESSAGES = 10_000
ALL = "[device]\nmessages_per_s = 10000\n"
"""One device may send all of them at once."""
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

    writers: list[asyncio.StreamWriter] = []

    async def serve(client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        writers.append(back)
        if came is not None:
            came.set()
        hello = await client.read(65_536)
        if not hello:
            back.close()
            return
        on_hello(hello)
        answers, broker = await asyncio.open_connection("127.0.0.1", target)
        writers.append(broker)
        broker.write(hello)
        await asyncio.gather(copy(client, broker), copy(answers, back))

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()
        for one in writers:
            one.close()
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(wait_until, condition, what)


@pytest.mark.long
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
        owner = await asyncio.to_thread(
            here.bridge, "b-owner", mqtt=ALL, inflight_messages_max=WINDOW
        )
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
        heir = await asyncio.to_thread(
            here.bridge, "b-heir", mqtt=ALL, inflight_messages_max=WINDOW
        )
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
                # Bridges of other tests are gone, too, and it may adopt their sessions.
                ends = [
                    line["event"]
                    for line in map(json.loads, heir.output().splitlines())
                    if line.get("session") == "b-owner" and line["event"] != "bridge.adopting"
                ]
                assert ends in (["bridge.handed_back"], ["bridge.adopted"]), "the owner took it"
                await asyncio.to_thread(here.stop)
        finally:
            here.node.process.thaw()
    counts = Counter(record.decode(one.value() or b"").frame.fields["n"][0] for one in found)
    assert {n: count for n, count in counts.items() if count > 1} == {}
    assert len(counts) == MESSAGES


async def test_what_is_handed_back_is_acknowledged_as_far_as_it_was_taken() -> None:
    heard: asyncio.Queue[object] = asyncio.Queue()
    peers: list[asyncio.StreamWriter] = []

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        packets = PacketReader()
        peers.append(writer)
        while piece := await reader.read(65_536):
            for packet in packets.feed(piece):
                heard.put_nowait(packet)
                if isinstance(packet, mqtt5.ConnectPacket):
                    writer.write(mqtt5.ConnAckPacket(session_present=True).write())
                    writer.write(b"".join(map(message, (1, 2))))
                elif isinstance(packet, mqtt5.UnsubscribePacket):
                    codes = [mqtt5.UnsubAckReasonCode.SUCCESS]
                    writer.write(mqtt5.UnsubAckPacket(packet.packet_id, codes).write())
                elif isinstance(packet, mqtt5.PingReqPacket):
                    writer.write(mqtt5.PingRespPacket().write())
        writer.close()

    async def hears(kind: type) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            while not isinstance(packet := await heard.get(), kind):
                pass
        return packet

    taken: list[Delivery] = []

    def on_publish(ledger: AckLedger, packet: mqtt5.PublishPacket | Unreadable) -> None:
        taken.append(Delivery(packet.packet_id, None, None, 0, 0.0))
        ledger.add(taken[-1])

    server = await asyncio.start_server(broker, "127.0.0.1", 0)
    is_wanted_back = asyncio.Event()
    adoption = Adoption(
        MqttConfig(port=server.sockets[0].getsockname()[1]),
        client_id="bridge:x:owner",
        filters=["$share/x/y"],
        receive_max=8,
        on_publish=on_publish,
        is_wanted_back=is_wanted_back.is_set,
        clock=SystemClock(),
    )
    async with server:
        running = asyncio.create_task(adoption.run())
        await hears(mqtt5.UnsubscribePacket)
        is_wanted_back.set()
        async with asyncio.timeout(PATIENCE_S):
            while not adoption.is_handing_back:
                await asyncio.sleep(0.01)
        peers[0].write(message(3))
        for one in taken:
            one.stored_at = (0, 0)
        adoption.write(b"".join(pubacks(adoption.ledger)))
        assert [(await hears(mqtt5.PubAckPacket)).packet_id for _ in range(2)] == [1, 2]
        assert (await hears(mqtt5.DisconnectPacket)).session_expiry_interval == SESSION_EXPIRY_S
        assert await running is Ended.HANDED_BACK
        peers[0].close()
        await peers[0].wait_closed()
    assert [one.packet_id for one in taken] == [1, 2], "the third one stays in the session"


def message(packet_id: int) -> bytes:
    return mqtt5.PublishPacket(
        "ew/v1/d/up/s", b"{}", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=packet_id
    ).write()
