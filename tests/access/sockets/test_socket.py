"""One WebSocket on a real hub over streams in memory: what it answers, in what order it writes, and
how it ends.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import orjson
import pytest

from edgewake.cloud.access.config import AccessConfig
from edgewake.cloud.access.connection import Connection
from edgewake.cloud.access.metrics import Metrics
from edgewake.cloud.access.open_streams import OpenStreams
from edgewake.cloud.access.sockets import socket as sockets
from edgewake.cloud.access.sockets.kept import KeptCursors
from edgewake.cloud.access.sockets.socket import (
    CHARS_A_MESSAGE,
    IDLE_S,
    MESSAGES_AT_ONCE,
    MESSAGES_PER_S,
    MISTAKES_MAX,
    SUBSCRIPTIONS_MAX,
    Closing,
    Socket,
)
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.rights.config import ANYBODY_CONFIG
from edgewake.cloud.rights.principal import ANYBODY
from edgewake.cloud.rights.rights import End, Rights
from edgewake.protocol.clock import FakeClock
from tests.access.test_open_streams import Wire
from tests.log.memory_hub import MemoryHub, left_empty, turns, until

HEARTBEAT_S = 15.0


class Talk:
    """A socket, and what its client heard."""

    def __init__(self, memory: MemoryHub) -> None:
        self.memory, self.clock, self.wire = memory, FakeClock(), Wire()
        self.streams = OpenStreams(
            AccessConfig(),
            Metrics(),
            memory.hub,
            rights=Rights(ANYBODY_CONFIG, self.clock),
            clock=self.clock,
            rng=random.Random(1),
        )
        self.socket = Socket(
            cast(Connection, self.wire),
            hub=memory.hub,
            streams=self.streams,
            reader=ANYBODY,
            client="c",
            heartbeat_s=HEARTBEAT_S,
            kept=KeptCursors(KafkaConfig(), "socket", self.clock),
            clock=self.clock,
        )

    async def say(self, kind: str, name: str = "a", /, **more: Any) -> None:
        if kind == "subscribe":
            more = {"streams": ["s"], "from": "earliest", **more}
        await self.socket.hear(orjson.dumps({"type": kind, "id": name, **more}).decode())
        await turns(60)

    def heard(self) -> list[dict[str, Any]]:
        """The messages since this was asked last."""
        found: list[dict[str, Any]] = []
        data, self.wire.sent = self.wire.sent, b""
        while data:
            assert data[0] == 0x81
            size, head = data[1], 2
            if size == 126:
                size, head = int.from_bytes(data[2:4], "big"), 4
            elif size == 127:
                size, head = int.from_bytes(data[2:10], "big"), 10
            found.append(orjson.loads(data[head : head + size]))
            data = data[head + size :]
        return found

    def kinds(self) -> list[str]:
        return [one["type"] for one in self.heard()]

    def writable(self) -> None:
        self.wire.is_paused = False
        assert self.wire.on_writable is not None
        self.wire.on_writable()

    @property
    def closing(self) -> Closing | None:
        found = self.socket.closing
        return found.result() if found.done() and not found.cancelled() else None


@asynccontextmanager
async def talk() -> AsyncIterator[Talk]:
    async with left_empty(MemoryHub()) as memory:
        here = Talk(memory)
        try:
            yield here
        finally:
            here.socket.close()
            here.socket.close()
            await turns()
        counted = (here.streams._of_client, here.streams._of_reader, here.streams._holdings)
        assert (len(here.streams), *map(bool, counted)) == (0, False, False, False)


@pytest.fixture
async def here() -> AsyncIterator[Talk]:
    async with talk() as found:
        yield found


async def test_a_subscription_begins_with_its_cursor_and_goes_on_with_what_comes(
    here: Talk,
) -> None:
    await here.say("subscribe")
    assert here.kinds() == ["subscribed"]
    here.memory.send({})
    await turns(60)
    assert here.kinds() == ["events", "checkpoint"]


async def test_no_more_events_are_given_than_credits_were(here: Talk) -> None:
    here.memory.send({}, {}, {})
    await here.say("subscribe", credits=2)
    given = [one for one in here.heard() if one["type"] == "events"]
    assert [len(one["events"]) for one in given] == [2]
    await here.say("credit", credits=1)
    (one,) = here.heard()
    assert [event["data"]["seq"] for event in one["events"]] == [3]


@pytest.mark.parametrize("kind", ["credit", "change", "unsubscribe"])
async def test_what_is_said_of_a_subscription_that_is_not_open_is_a_mistake(
    here: Talk, kind: str
) -> None:
    more = {"credits": 1} if kind == "credit" else {}
    await here.say(kind, "b", **more)
    (problem,) = here.heard()
    assert (problem["code"], problem["id"]) == ("unknown_id", "b")


async def test_the_last_subscription_is_opened_and_one_more_only_when_another_is_over(
    here: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "MESSAGES_AT_ONCE", 1000)
    here.socket._messages = 1000.0
    for n in range(SUBSCRIPTIONS_MAX):
        await here.say("subscribe", f"n{n}")
    assert {*here.kinds()} == {"subscribed"}
    await here.say("subscribe", "late")
    assert [one["code"] for one in here.heard()] == ["subscriptions"]
    await here.say("subscribe", "n0")
    assert [one["code"] for one in here.heard()] == ["id_in_use"]
    await here.say("unsubscribe", "n0")
    await here.say("subscribe", "n0")
    assert here.kinds() == ["end", "subscribed"]


@pytest.mark.parametrize("more", [0, 1])
async def test_a_program_that_cannot_be_understood_is_closed_at_its_last_mistake(
    here: Talk, more: int
) -> None:
    for _ in range(MISTAKES_MAX - 1 + more):
        await here.socket.hear("{")
    assert len(here.heard()) == MISTAKES_MAX - 1 + more
    assert (here.closing is not None) is bool(more)
    assert here.closing is None or here.closing.code == 1008


async def test_messages_come_at_once_up_to_a_bound_and_then_at_a_rate(here: Talk) -> None:
    async def waited_s(size: int = 0) -> float:
        began_s = here.clock.monotonic_s()
        await here.socket._in_turn(size)
        return here.clock.monotonic_s() - began_s

    each_s = 1 / MESSAGES_PER_S
    assert [await waited_s() for _ in range(MESSAGES_AT_ONCE)] == [0.0] * MESSAGES_AT_ONCE
    assert await waited_s() == pytest.approx(each_s)
    assert await waited_s(CHARS_A_MESSAGE) == pytest.approx(2 * each_s), (
        "a long message counts as two"
    )
    here.clock.advance(3600)
    assert {await waited_s() for _ in range(MESSAGES_AT_ONCE)} == {0.0}
    assert await waited_s() == pytest.approx(each_s), (
        "what was not used does not add up without bound"
    )


async def test_who_takes_no_answers_is_not_heard(here: Talk) -> None:
    here.wire.is_paused = True
    waiting = asyncio.create_task(here.say("unsubscribe"))
    await turns()
    assert not waiting.done()
    here.writable()
    await waiting
    assert here.kinds() == ["problem"]


async def test_a_refused_request_is_answered_with_what_is_wrong_and_leaves_no_subscription(
    here: Talk,
) -> None:
    for more, code in (
        ({"where": "n >"}, "filter"),
        ({"streams": ["nowhere"], "from": "when"}, "from"),
        ({"after": "garbage", "from": None}, "cursor_garbage"),
    ):
        await here.say("subscribe", **more)
        (problem,) = here.heard()
        assert problem["type"] == "problem"
        assert code in problem["code"]
        assert (len(here.streams), here.streams._of_reader.total()) == (1, 0)


async def test_what_is_ended_while_it_is_opened_is_forgotten_when_its_end_is_written(
    here: Talk,
) -> None:
    await here.socket.hear(
        orjson.dumps({"type": "subscribe", "id": "a", "streams": ["s"], "from": "latest"}).decode()
    )
    here.wire.is_paused = True
    here.socket._unsubscribe("a")
    await turns(60)
    assert (here.heard(), len(here.socket._channels)) == ([], 1)
    here.writable()
    assert here.kinds()[-1] == "end"
    assert len(here.socket._channels) == 0


async def test_what_was_acknowledged_is_kept_before_who_unsubscribes_hears_the_end(
    here: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was dropped without a word, and all since the acknowledgement before came once more."""
    kept, may_go_on = list[str](), asyncio.Event()

    async def cursor(_: KeptCursors, __: str, ___: str) -> None:
        return None

    async def keep(_: KeptCursors, __: str, ___: str, cursor: str) -> None:
        await may_go_on.wait()
        kept.append(cursor)

    monkeypatch.setattr(KeptCursors, "cursor", cursor)
    monkeypatch.setattr(KeptCursors, "keep", keep)
    await here.say("subscribe", name="mine")
    (begun,) = here.heard()
    await here.say("ack", cursor=begun["cursor"])
    await here.say("unsubscribe")
    here.memory.send({"n": 1})
    await turns()
    assert here.kinds() == [], "it wants no more events, and is not told the end yet"
    may_go_on.set()
    await turns(60)
    assert here.kinds() == ["acked", "end"]
    assert kept == [begun["cursor"]]


async def test_who_is_behind_takes_turns_with_the_others(here: Talk) -> None:
    for _ in range(4):
        here.memory.send({"text": "x" * 60_000})
    for name in ("a", "b"):
        await here.socket.hear(
            orjson.dumps(
                {"type": "subscribe", "id": name, "streams": ["s"], "from": "earliest"}
            ).decode()
        )
    found: list[str] = []

    def are_there() -> bool:
        for one in here.heard():
            found.extend([one["id"]] * len(one.get("events", ())))
        return len(found) >= 8

    await until(are_there)
    assert sorted(found) == ["a"] * 4 + ["b"] * 4
    assert found != sorted(found), "neither waits for the other's past"


@pytest.mark.parametrize("early_s", [0.0, 0.1])
async def test_a_heartbeat_is_due_after_silence_and_says_where_it_stands_if_that_is_news(
    here: Talk, early_s: float
) -> None:
    await here.say("subscribe", where="n > 5")
    here.heard()
    here.clock.advance(HEARTBEAT_S - early_s)
    here.socket.watch(here.clock.monotonic_s(), stall_s=60)
    assert here.kinds() == ([] if early_s else ["heartbeat"])
    here.memory.send({"n": 1})
    await turns(60)
    here.clock.advance(HEARTBEAT_S)
    here.socket.watch(here.clock.monotonic_s(), stall_s=60)
    assert here.kinds() == ["checkpoint"]


async def test_a_socket_without_a_subscription_is_closed_when_it_was_idle_for_so_long(
    here: Talk,
) -> None:
    await here.say("subscribe")
    here.clock.advance(IDLE_S)
    here.socket.watch(here.clock.monotonic_s(), stall_s=600)
    await here.say("unsubscribe")
    here.clock.advance(IDLE_S - 0.1)
    here.socket.watch(here.clock.monotonic_s(), stall_s=600)
    assert here.closing is None
    here.clock.advance(0.1)
    here.socket.watch(here.clock.monotonic_s(), stall_s=600)
    assert here.closing == Closing(1008, "no subscription within 60 seconds")


@pytest.mark.parametrize("has_one", [True, False])
async def test_a_server_that_stops_ends_the_subscriptions_and_then_the_socket(
    here: Talk, has_one: bool
) -> None:
    if has_one:
        await here.say("subscribe")
        here.heard()
    assert await here.streams.drain(within_s=0.01) == 1
    assert [one.get("reason") for one in here.heard()] == ["server_stops"] * has_one
    assert here.closing is not None
    assert here.closing.code == 1012
    assert here.wire.is_aborted


@pytest.mark.parametrize("is_paused", [True, False])
async def test_whose_right_ends_is_told_in_each_subscription_or_is_cut_off(
    here: Talk, is_paused: bool
) -> None:
    for name in ("a", "b"):
        await here.say("subscribe", name)
    here.heard()
    here.wire.is_paused = is_paused
    here.socket.end_of_right(End.REVOKED)
    here.socket.end_of_right(End.EXPIRED)
    assert [one["reason"] for one in here.heard()] == [] if is_paused else ["revoked"] * 2
    assert here.wire.is_aborted is is_paused
    assert here.closing is not None
    assert "revoked" in here.closing.reason


async def test_one_subscription_that_an_operator_ends_leaves_the_others(here: Talk) -> None:
    await here.say("subscribe", "a")
    await here.say("subscribe", "b")
    here.heard()
    here.socket._channels["a"].expel("too greedy")
    assert here.kinds() == ["problem", "end"]
    here.memory.send({})
    await turns(60)
    assert [one["id"] for one in here.heard()] == ["b", "b"]


async def test_a_stream_that_ends_is_an_end_to_come_again_for(here: Talk) -> None:
    await here.say("subscribe")
    here.heard()
    here.memory.close_stream()
    await turns(60)
    (end,) = here.heard()
    assert (end["type"], end["reason"]) == ("end", "reopen")
    assert end["cursor"]
    here.memory.follow("s")
    await here.say("subscribe", after=end["cursor"], **{"from": None})
    assert here.kinds()[0] == "subscribed"
