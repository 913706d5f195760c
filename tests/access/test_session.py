"""One client's stream on a real hub over streams in memory: what it is given next, and in which
order, whatever happens meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from edgewake.cloud.access import session as sessions
from edgewake.cloud.access.session import Session
from edgewake.cloud.access.session_state import State
from edgewake.cloud.access.slow.treated import SLOTS, Slots
from edgewake.cloud.held_bytes import HeldBytes
from edgewake.cloud.log.request import request
from edgewake.cloud.log.wanted import FREE, Pace
from edgewake.cloud.rights.principal import ANYBODY
from tests.log.memory_hub import CODEC, MemoryHub, left_empty, turns, until

CHUNK = re.compile(rb"\A[0-9a-f]+\r\n(.*)\r\n\Z", re.DOTALL)


class Client:
    """A session, and what was written of it."""

    def __init__(self, memory: MemoryHub) -> None:
        self.memory = memory
        self.session: Session
        self.changes: list[tuple[State, State]] = []
        self.superseded = 0
        self.slots = Slots(share=1)

    async def begin(self, **more: Any) -> None:
        hub = self.memory.hub
        pace, as_events = more.pop("pace", FREE), more.pop("checkpoint_events", False)
        heartbeats = more.pop("heartbeat_events", False)
        cursor = more.pop("cursor", None)
        start = None if cursor else more.pop("start", "earliest")
        asked = request(["s"], now_ms=0, start=start, cursors=(cursor,), **more)
        plan = await hub.open(asked.subscription, ANYBODY)
        self.plan = plan
        self.session = Session(
            hub,
            plan,
            await hub.start(plan, asked),
            on_gap=asked.on_gap,
            checkpoint_events=as_events,
            heartbeat_events=heartbeats,
            pace=pace,
            account=HeldBytes().account("c"),
            clock=self.memory.clock,
            on_change=lambda *change: self.changes.append(change),
            on_superseded=self._left_out,
        )
        self.session.start(retry_ms=1000)

    def _left_out(self, count: int) -> None:
        self.superseded += count

    def take(self) -> list[str]:
        """What is there now, each event by its kind or its number."""
        text = b""
        while (piece := self.session.next()) is not None:
            match = CHUNK.match(piece)
            found = piece if match is None else match[1]
            text += re.sub(rb"\r\n[0-9a-f]+\r\n", b"", found)
        return [_told(block) for block in text.decode().split("\n\n") if block]

    async def live(self) -> list[str]:
        """What comes until it is live."""
        found: list[str] = []

        def is_live() -> bool:
            found.extend(self.take())
            return self.session.state is State.LIVE

        await until(is_live)
        return found


def _told(block: str) -> str:
    lines = dict(line.partition(":")[::2] for line in block.splitlines())
    if "event" in lines:
        return lines["event"].strip()
    if "data" in lines:
        return str(orjson.loads(lines["data"])["seq"])
    return next((name for name in ("id", "retry") if name in lines), "comment")


@asynccontextmanager
async def client(**more: Any) -> AsyncIterator[Client]:
    async with left_empty(MemoryHub()) as memory:
        here = Client(memory)
        await here.begin(**more)
        try:
            yield here
        finally:
            here.session.close()
            here.session.close()
            assert here.session.state is State.GONE
            memory.hub.close(here.plan)


async def test_it_has_a_cursor_before_its_first_event() -> None:
    async with client() as c:
        assert not c.session.is_calm, "nothing was written yet"
        assert c.take() == ["id"]
        assert c.session.is_calm
        c.memory.send({})
        assert await c.live() == ["1", "id"], "the second one stands behind the event"
        assert c.changes == [
            (State.STARTING, State.BEHIND),
            (State.BEHIND, State.LIVE),
        ]


async def test_a_checkpoint_is_an_event_for_who_ignores_lone_ids() -> None:
    async with client(checkpoint_events=True) as c:
        assert await c.live() == ["checkpoint"]


async def test_nothing_is_said_to_a_live_client_before_something_comes_or_is_due() -> None:
    async with client() as c:
        await c.live()
        assert c.take() == []
        c.session.beat()
        assert c.take() == ["comment"]
        assert c.take() == [], "one sign of life a beat"


async def test_a_heartbeat_is_an_event_where_that_is_asked_for() -> None:
    async with client(heartbeat_events=True) as c:
        await c.live()
        c.session.beat()
        assert c.take() == ["heartbeat"]


async def test_a_beat_announces_what_only_filtered_out_events_moved_and_that_once() -> None:
    async with client(where="n > 5") as c:
        await c.live()
        before = c.session.cursor()
        c.memory.send({"n": 1})
        await turns()
        assert c.take() == []
        c.session.beat()
        assert c.take() == ["id"]
        assert c.session.cursor() != before
        c.session.beat()
        assert c.take() == ["comment"]


async def test_what_waits_is_a_sign_of_life() -> None:
    """A comment came after words that had just been written."""
    async with client() as c:
        await c.live()
        c.session.say(b"event: warning\ndata: {}\n\n")
        c.session.beat()
        assert c.take() == ["warning"]


async def test_our_own_words_come_before_events_that_are_there_already() -> None:
    async with client() as c:
        await c.live()
        c.memory.send({})
        await turns()
        c.session.say(b"event: warning\ndata: {}\n\n")
        assert c.take() == ["warning", "1"]


async def test_chunks_that_are_at_hand_are_joined_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "JOIN_BYTES", 1)
    async with client() as c:
        await c.live()
        for _ in range(3):
            c.memory.send({})
        await turns()
        piece = c.session.next()
        assert piece is not None
        assert piece.count(b"data:") >= 1
        rest = await _all(c, 4 - piece.count(b"data:"))
        assert rest == [*map(str, range(piece.count(b"data:") + 1, 4)), "id"]


async def _all(c: Client, count: int) -> list[str]:
    found: list[str] = []

    def are_there() -> bool:
        found.extend(c.take())
        return len(found) >= count

    await until(are_there)
    return found


async def test_the_end_comes_behind_what_is_queued_and_before_what_is_not() -> None:
    async with client() as c:
        await c.live()
        c.memory.send({})
        await turns()
        c.session.say(b"event: end\ndata: {}\n\n")
        c.session.end()
        c.session.end()
        assert c.take() == ["end"]
        assert c.session.state is State.ENDING
        c.session.beat()
        assert c.take() == []


async def test_one_that_is_closed_before_it_was_read_and_one_that_ends_at_its_start() -> None:
    async with client() as c:
        c.memory.send({})
        await turns()
    async with left_empty(MemoryHub()) as memory:
        memory.send({})
        first = Client(memory)
        await first.begin()
        cursor = first.session.cursor()
        first.session.close()
        memory.hub.close(first.plan)
        memory.trim(1)
        stops = Client(memory)
        await stops.begin(cursor=cursor, on_gap="stop")
        assert stops.take() == ["gap"]
        assert stops.session.state is State.ENDING
        stops.session.close()
        memory.hub.close(stops.plan)


@pytest.mark.parametrize(("on_gap", "expected"), [("earliest", ["gap", "3"]), ("stop", ["gap"])])
async def test_a_range_that_is_lost_while_it_is_read_is_said_once_kafka_says_what_is_kept(
    on_gap: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "AGAIN_S", 0.001)
    async with client(on_gap=on_gap) as c:
        for _ in range(3):
            c.memory.put({})
        c.memory.tick()
        c.memory.trim(2)
        assert c.take() == ["id"]
        log = c.memory.log
        await until(lambda: c.take() == [] and c.session._gap_task is not None)
        log.is_away = True
        asked = log.asked
        await until(lambda: log.asked > asked + 1)
        c.session.beat()
        assert c.take() == ["comment"], "it is alive meanwhile"
        assert c.session.skip() == 0, "and cannot be moved"
        assert not c.session.conflate(c.slots, "c")
        log.is_away = False
        assert await _all(c, len(expected)) == expected
        if on_gap == "stop":
            await until(lambda: c.session.state is State.ENDING)
        else:
            await c.live()


async def test_a_gap_up_to_the_live_end_is_followed_by_no_second_cursor() -> None:
    async with client() as c:
        c.memory.send({})
        c.memory.trim(1)
        assert await c.live() == ["id", "gap"]


async def test_one_that_is_closed_while_kafka_does_not_say_what_is_kept_leaves_nothing() -> None:
    async with client() as c:
        c.memory.send({})
        c.memory.trim(1)
        await until(lambda: c.take() == [] and c.session._gap_task is not None)
        c.memory.log.is_away = True
        await turns()
        c.session.close()
        await turns()
        assert c.session.next() is None or c.session.state is State.GONE


async def test_a_view_that_ends_ends_it_for_another_try_and_one_that_fails_says_so() -> None:
    async with client() as c:
        await c.live()
        c.memory.close_stream()
        await until(lambda: c.take() == [] and c.session.state is State.ENDING)
        assert not c.session.has_failed
        c.memory.follow("s")
    async with client() as c:
        await c.live()
        (view,) = c.memory.hub.views._of.values()
        view.fail(ValueError("it cannot be encoded"))
        await turns()
        assert c.take() == ["problem", "retry"]
        assert (c.session.has_failed, c.session.state) == (True, State.ENDING)


async def test_who_skips_goes_on_at_the_live_end_with_a_gap_for_what_was_left_out() -> None:
    async with client() as c:
        assert c.take() == ["id"]
        c.memory.send({})
        c.memory.send({})
        assert c.session.behind().records == 2
        assert c.session.skip() == 1
        assert c.session.skip() == 0, "it is there"
        assert c.take() == ["gap"]
        c.memory.send({})
        assert await _all(c, 1) == ["3"]
        assert CODEC.decode(c.session.cursor()).streams[0].partitions == ((3, 0),)


async def test_who_conflates_is_given_the_latest_and_told_how_many_were_left_out() -> None:
    async with client() as c:
        for device in "aab":
            c.memory.send({"device": device})
        assert c.session.conflate(c.slots, "c")
        assert not c.session.conflate(c.slots, "c"), "it does already"
        found = await _all(c, 4)
        assert found == ["id", "2", "3", "conflated"]
        assert c.superseded == 1
        c.session.close()
        assert sum(c.slots.take("c") for _ in range(SLOTS + 1)) == SLOTS, "its slot is free again"


async def test_a_client_with_a_pace_is_never_conflated_a_second_time() -> None:
    async with client(pace=Pace(conflate_ms=10)) as c:
        assert not c.session.conflate(c.slots, "c")
