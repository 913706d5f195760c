"""All open streams of a server: who is counted, what an end says and when, and the drain."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from edgewake.cloud.access import open_streams
from edgewake.cloud.access.config import AccessConfig
from edgewake.cloud.access.connection import Connection
from edgewake.cloud.access.metrics import Metrics
from edgewake.cloud.access.open_streams import OpenStream, OpenStreams
from edgewake.cloud.access.session import Session
from edgewake.cloud.log.hub_bounds import Full
from edgewake.cloud.log.request import request
from edgewake.cloud.log.subscription import Plan, Sight, sight
from edgewake.cloud.rights.config import ANYBODY_CONFIG
from edgewake.cloud.rights.principal import ANYBODY
from edgewake.cloud.rights.rights import End, Rights
from edgewake.protocol.clock import FakeClock
from tests.log.memory_hub import MemoryHub, left_empty, turns, until


class Wire:
    """A connection whose client takes what it is let."""

    def __init__(self) -> None:
        self.is_paused = self.is_aborted = False
        self.on_lost: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None
        self.sent = b""
        self.unsent = 0

    def write(self, framed: bytes) -> None:
        self.sent += framed

    def waiting(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.is_aborted = True

    def is_lost(self) -> bool:
        return self.is_aborted


class Server:
    """Open streams over a hub in memory."""

    def __init__(self, memory: MemoryHub, **config: Any) -> None:
        self.memory, self.clock = memory, FakeClock()
        self.streams = OpenStreams(
            AccessConfig(**config),
            Metrics(),
            memory.hub,
            rights=Rights(ANYBODY_CONFIG, self.clock),
            clock=self.clock,
            rng=random.Random(1),
        )
        self.plans: dict[OpenStream, Plan] = {}

    def come(self, client: str = "c", **more: Any) -> tuple[OpenStream, Wire]:
        """A client whose stream is being opened."""
        wire = Wire()
        connection = cast(Connection, wire)
        found = self.streams.add(
            connection, client=client, reader=ANYBODY, heartbeat_s=None, **more
        )
        return found, wire

    async def session(self, stream: OpenStream, where: str | None = None) -> Session:
        """What it reads; `start` it."""
        hub = self.memory.hub
        asked = request(["s"], now_ms=0, start="earliest", where=where)
        self.streams.claim(stream, sight(asked.subscription, ANYBODY))
        plan = self.plans[stream] = await hub.open(asked.subscription, ANYBODY)
        start = await hub.start(plan, asked)
        return Session(
            hub,
            plan,
            start,
            on_gap=asked.on_gap,
            checkpoint_events=False,
            heartbeat_events=False,
            account=self.streams.held.account(stream.holder),
            clock=self.clock,
            on_change=self.streams.on_change,
            on_superseded=lambda _: None,
        )

    async def live(self, client: str = "c", **more: Any) -> tuple[OpenStream, Wire]:
        """A client that has all there is."""
        stream, wire = self.come(client, **more)
        stream.start(await self.session(stream), retry_ms=1000)
        await until(lambda: stream.seen().state == "live")
        return stream, wire

    def close(self, stream: OpenStream) -> None:
        stream.close()
        plan = self.plans.pop(stream, None)
        if plan is not None:
            self.memory.hub.close(plan)

    def sight(self, where: str) -> Sight:
        return sight(request(["s"], now_ms=0, where=where).subscription, ANYBODY)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with left_empty(MemoryHub()) as memory:
        here = Server(memory)
        yield here
        for stream in list(here.streams.members):
            here.close(cast(OpenStream, stream))
        streams = here.streams
        assert (len(streams), streams.behind, streams.held.total) == (0, 0, 0)
        counted = (streams._of_client, streams._of_reader, streams._of_holder, streams._holdings)
        assert [bool(one) for one in counted] == [False] * 4, "nothing is counted for who left"


async def test_it_counts_while_it_is_opened_and_not_after_it_was_closed_once_or_twice(
    server: Server,
) -> None:
    stream, _ = server.come()
    other, _ = server.come()
    assert (len(server.streams), server.streams._of_client["c"]) == (2, 2)
    server.close(stream)
    server.close(stream)
    assert (len(server.streams), server.streams._of_client["c"]) == (1, 1)
    assert stream.seen().state == other.seen().state == "opening"


async def test_the_last_place_is_given_and_one_more_is_refused(server: Server) -> None:
    most = server.streams.config.clients_max
    for n in range(most):
        server.come(f"c{n}")
    with pytest.raises(Full):
        server.come("late")
    server.close(cast(OpenStream, next(iter(server.streams.members))))
    server.come("late")


async def test_what_was_claimed_is_released_once_however_it_ends(server: Server) -> None:
    stream, _ = server.come()
    server.streams.claim(stream, server.sight("n > 1"))
    assert server.streams._holdings[stream.holder].filters == 1
    server.streams.release(stream)
    server.streams.release(stream)
    assert server.streams._holdings[stream.holder].filters == 0
    other, _ = server.come()
    server.streams.claim(stream, server.sight("n > 2"))
    server.streams.claim(other, server.sight("n > 3"))
    server.close(stream)
    holding = server.streams._holdings[other.holder]
    assert holding.filters == 1, "the other's is counted still"
    server.streams.release(stream)
    assert holding.filters == 1


@pytest.mark.parametrize("how", ["expel", "right", "fail", "end"])
async def test_an_end_while_it_is_opened_is_said_once_it_is_open(server: Server, how: str) -> None:
    stream, wire = server.come()
    session = await server.session(stream)
    _end(stream, how)
    assert (wire.sent, stream.ended.done()) == (b"", False)
    stream.start(session, retry_ms=1000)
    await until(stream.ended.done)
    _check_words(wire, how)


@pytest.mark.parametrize("how", ["expel", "right", "fail", "end"])
@pytest.mark.parametrize("is_waiting", [True, False])
async def test_an_end_of_one_that_is_open_or_waits_is_said_at_once(
    server: Server, how: str, is_waiting: bool
) -> None:
    if is_waiting:
        stream, wire = server.come()
        stream.wait(retry_ms=1000)
        assert stream.seen().state == "waiting"
    else:
        stream, wire = await server.live()
    _end(stream, how)
    assert stream.ended.done()
    _check_words(wire, how)


@pytest.mark.parametrize("how", ["expel", "right", "fail", "end"])
async def test_twice_ended_is_once(server: Server, how: str) -> None:
    stream, wire = await server.live()
    _end(stream, how)
    sent = wire.sent
    _end(stream, how)
    stream.end()
    assert wire.sent == sent


@pytest.mark.parametrize("is_open", [True, False])
async def test_of_two_ends_before_anything_could_be_said_the_first_is_said(
    server: Server, is_open: bool
) -> None:
    """A client was told twice that it had ended, with two reasons and two times to come back."""
    for _ in range(3):
        server.memory.send({})
    stream, wire = server.come()
    session = await server.session(stream)
    if is_open:
        stream.start(session, retry_ms=1000)
        assert not stream.ended.done(), "who is behind waits for a turn"
    stream.expel("too greedy")
    stream.end_of_right(End.EXPIRED)
    if not is_open:
        stream.start(session, retry_ms=1000)
    await until(stream.ended.done)
    assert wire.sent.count(b"event: end") == 1
    assert b"too greedy" in wire.sent


def _end(stream: OpenStream, how: str) -> None:
    {
        "expel": lambda: stream.expel("too greedy"),
        "right": lambda: stream.end_of_right(End.EXPIRED),
        "fail": lambda: stream.fail("too many partitions"),
        "end": stream.end,
    }[how]()


def _check_words(wire: Wire, how: str) -> None:
    words = {"expel": b"too greedy", "right": b'"expired"', "fail": b"too many partitions"}
    for one, text in words.items():
        assert (text in wire.sent) is (one == how)
    expelled = wire.sent.count(b"retry: 30000")
    assert expelled == (how in ("expel", "fail")), "who is sent away comes back later"


async def test_who_reads_nothing_is_cut_off_by_an_operator_and_not_by_a_stop(
    server: Server,
) -> None:
    for how in ("expel", "right", "fail", "end"):
        stream, wire = await server.live()
        wire.is_paused = True
        _end(stream, how)
        assert wire.is_aborted is (how != "end"), how
        server.close(stream)


async def test_what_waits_is_written_when_the_client_reads_again_and_then_it_ends(
    server: Server,
) -> None:
    stream, wire = await server.live()
    wire.is_paused = True
    server.memory.send({"n": 7})
    await turns()
    stream.end()
    before = wire.sent
    assert not stream.ended.done()
    wire.is_paused = False
    assert wire.on_writable is not None
    wire.on_writable()
    assert stream.ended.done()
    assert wire.sent.startswith(before)


async def test_an_answer_that_is_no_stream_is_ended_also_where_it_was_asked_for_before(
    server: Server,
) -> None:
    calls: list[str] = []
    early, _ = server.come()
    early.end()
    early.call_at_end(lambda: calls.append("early"))
    late, _ = server.come()
    late.call_at_end(lambda: calls.append("late"))
    late.end()
    assert calls == ["early", "late"]


async def test_a_connection_that_is_lost_ends_it_and_one_that_was_lost_before_too(
    server: Server,
) -> None:
    stream, wire = await server.live()
    assert wire.on_lost is not None
    wire.on_lost()
    assert stream.lost.done()
    assert stream.ended.done()
    sent = wire.sent
    server.memory.send({})
    await turns()
    assert wire.sent == sent, "nothing is written to who is gone"
    gone = Wire()
    gone.abort()
    found = server.streams.add(cast(Connection, gone), client="c", reader=ANYBODY, heartbeat_s=None)
    assert found.lost.done()


@pytest.mark.parametrize("silent_s", [0.0, -0.1])
async def test_a_heartbeat_is_due_when_nothing_was_written_for_so_long(
    server: Server, silent_s: float
) -> None:
    stream, wire = await server.live()
    sent = wire.sent
    server.clock.advance(server.streams.config.heartbeat_s + silent_s)
    stream.watch(server.clock.monotonic_s(), stall_s=60)
    assert (wire.sent != sent) is (silent_s == 0)


async def test_who_takes_nothing_while_bytes_wait_is_cut_off_and_who_takes_some_is_not(
    server: Server,
) -> None:
    slow, slow_wire = await server.live()
    dead, dead_wire = await server.live("d")
    for one in (slow_wire, dead_wire):
        one.unsent = 100
    for second in range(61):
        server.clock.advance(1)
        slow_wire.unsent = 100 - second
        for stream in (slow, dead):
            stream.watch(server.clock.monotonic_s(), stall_s=60)
    assert (slow.is_stalled, dead.is_stalled) == (False, True)
    assert (slow_wire.is_aborted, dead_wire.is_aborted) == (False, True)


async def test_a_stop_waits_for_those_who_end_and_cuts_off_the_rest(server: Server) -> None:
    stream, _ = await server.live()
    stuck, wire = await server.live("stuck")
    wire.is_paused = True
    draining = asyncio.create_task(server.streams.drain(within_s=0.05))
    await turns()
    assert stream.ended.done()
    server.close(stream)
    with pytest.raises(Full, match="about to stop"):
        server.come()
    with pytest.raises(Full, match="about to stop"):
        server.streams.admit(stuck, replays=False)
    assert await draining == 1
    assert wire.is_aborted


async def test_a_stop_of_an_empty_server_is_at_once(server: Server) -> None:
    async with asyncio.timeout(10):
        assert await server.streams.drain(within_s=3600) == 0


async def test_the_watch_passes_over_who_leaves_meanwhile(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_streams, "WATCHED_AT_ONCE", 1)
    first, _ = await server.live()
    second, _ = await server.live("d")
    seen: list[OpenStream] = []
    monkeypatch.setattr(first, "watch", lambda *_, **__: server.close(second))
    monkeypatch.setattr(second, "watch", lambda *_, **__: seen.append(second))
    watching = asyncio.create_task(server.streams.run())
    await turns(5)
    server.clock.advance(1)
    await turns()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert seen == []
    assert len(server.streams) == 1


def test_who_is_refused_waits_for_two_to_six_whole_seconds() -> None:
    rng = random.Random(7)
    streams = OpenStreams.__new__(OpenStreams)
    streams._rng, streams.config = rng, AccessConfig()
    waits = {streams.retry_after_s() for _ in range(200)}
    assert waits == {2, 3, 4, 5, 6}
    retries = [streams.retry_ms() for _ in range(200)]
    least = streams.config.retry_ms * 0.5
    assert least <= min(retries) < max(retries) <= 3 * least
