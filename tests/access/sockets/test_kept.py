"""Cursors that the server keeps under a client's name."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import orjson
import pytest

from edgewake.cloud.access.sockets.kept import (
    FREED_MAX,
    KEPT_MS,
    NAMES_MAX,
    TOGETHER_MAX,
    TOTAL_MAX,
    KeptCursors,
    Table,
)
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log.hub_bounds import Full
from edgewake.protocol.clock import FakeClock, SystemClock
from edgewake.protocol.errors import Unavailable
from tests.access.sockets.talk import places, talk
from tests.access.world import Server, server
from tests.feeds import Feed, unique
from tests.services import PATIENCE_S


def record(clock: FakeClock, cursor: str) -> bytes:
    return orjson.dumps({"cursor": cursor, "at": clock.now_ms()})


def test_one_holder_has_so_many_names_and_a_month_frees_one() -> None:
    clock = FakeClock()
    table = Table(clock)
    for number in range(NAMES_MAX):
        table.take(f"ann|{number}", record(clock, "c"))
    assert "100 names" in (table.refusal("ann|more") or "")
    assert table.refusal("ann|5") is None
    assert table.refusal("bob|more") is None
    clock.advance(KEPT_MS / 1000 + 1)
    assert table.cursor("ann|5") is None
    assert table.refusal("ann|more") is None
    for key in table.old("ann"):
        table.take(key, None)
    assert table.old("ann") == []


def test_names_of_those_who_never_come_back_make_room_after_a_month() -> None:
    """With an address of its own each day, a phone is somebody else each day; none was freed."""
    clock = FakeClock()
    table = Table(clock)
    for number in range(TOTAL_MAX):
        table.take(f"anonymous@{number}|a", record(clock, "c"))
    assert "50000 names" in (table.refusal("ann|a") or "")
    clock.advance(KEPT_MS / 1000 + 1)
    assert table.refusal("ann|a") is None
    for key in table.old("ann"):
        table.take(key, None)
    table.take("ann|a", record(clock, "c"))
    assert len(table._kept) == TOTAL_MAX - FREED_MAX + 1
    assert table.old("ann") == table.old("bob"), "some of the others, never a fresh one"
    assert "ann|a" not in table.old("ann")


def test_an_acknowledgement_looks_at_its_own_names_and_a_few_others() -> None:
    """It looked at all of everybody's: 15 ms each, in the one thread that all wait for."""
    clock = FakeClock()
    table = Table(clock)
    for number in range(1000):
        table.take(f"anonymous@{number}|a", record(clock, "c"))
    looked: list[str] = []
    is_old = table._is_old
    table._is_old = lambda key: bool(looked.append(key)) or is_old(key)  # type: ignore[method-assign]
    assert table.refusal("ann|a") is None
    assert len(looked) <= FREED_MAX


def test_a_record_that_cannot_be_read_is_refused_and_the_last_one_counts() -> None:
    clock = FakeClock()
    table = Table(clock)
    for value in (b"[]", b'{"cursor":5}', b"{"):
        with pytest.raises(ValueError, match=r"."):
            table.take("ann|a", value)
    table.take("ann|a", record(clock, "one"))
    table.take("ann|a", record(clock, "two"))
    assert table.cursor("ann|a") == "two"
    table.take("ann|a", None)
    assert table.cursor("ann|a") is None


@pytest.mark.services
async def test_who_comes_back_goes_on_behind_what_it_acknowledged_at_another_server(
    access_directory: Path,
    kafka_config: KafkaConfig,
    cursor_key: Path,
    access_b: Server,
    feed: Feed,
) -> None:
    """Also after the server was killed that said `acked`; what was not acknowledged comes again."""
    feed.send(n=10, frames=2)
    name = unique("worker")
    with server(access_directory, kafka_config, cursor_key) as first:
        async with talk(first) as socket:
            words = {"streams": [feed.name], "from_": "earliest", "name": name}
            await socket.say("subscribe", credits=12, **words)
            events = await socket.take(12)
            await socket.say("ack", cursor=events[2]["cursor"])
            await socket.say("ack", cursor=events[6]["cursor"])
            while (await socket.until("acked"))["cursor"] != events[6]["cursor"]:
                pass
            first.process.kill()
    async with talk(access_b) as socket:
        await socket.say("subscribe", **words)
        assert (await socket.until("subscribed"))["start"] == "resumed"
        again = await socket.take(13)
        assert places(again) == [("dev-1", n) for n in range(8, 21)]
        await socket.say("subscribe", "b", **words | {"name": unique("other")})
        assert (await socket.until("subscribed"))["start"] == "earliest"
        await socket.say("subscribe", "c", after=again[-1]["cursor"], **words)
        feed.send()
        assert places(await socket.take(1, "c")) == [("dev-1", 21)]


@pytest.mark.services
async def test_an_acknowledgement_frees_nothing_that_another_server_kept_since(
    kafka_config: KafkaConfig,
) -> None:
    now_ms = SystemClock().now_ms()
    before = KeptCursors(kafka_config, "before", FakeClock(now_ms=now_ms - KEPT_MS - 60_000))
    here, there = (KeptCursors(kafka_config, name, FakeClock(now_ms=now_ms)) for name in "ab")
    holder = unique("ann")
    for name in ("comes-back", "never"):
        await before.keep(holder, name, "v1")
        assert await here.cursor(holder, name) is None, "it is free again"
    await there.keep(holder, "comes-back", "v2")
    await here.keep(holder, "another", "v3")
    assert await there.cursor(holder, "comes-back") == "v2"
    assert f"{holder}|never" not in there._table._kept, "what is free is freed"


@pytest.mark.services
async def test_those_who_ask_together_are_answered_together(kafka_config: KafkaConfig) -> None:
    """Each acknowledgement waited for Kafka by itself: 200 a second, and then `unavailable`."""
    kept = KeptCursors(kafka_config, "together", SystemClock())
    holders = [unique("ann") for _ in range(100)]
    rounds: list[int] = []
    answers = kept._answers

    def counted(asks: Any) -> Any:
        rounds.append(len(asks))
        return answers(asks)

    kept._answers = counted  # type: ignore[method-assign]
    await asyncio.gather(
        *(kept.keep(one, f"name-{n}", f"c{n}") for one in holders for n in range(40))
    )
    assert max(rounds) == TOGETHER_MAX
    assert len(rounds) <= 4000 // TOGETHER_MAX + 2
    found = await asyncio.gather(*(kept.cursor(one, "name-7") for one in holders))
    assert found == ["c7"] * 100
    other = KeptCursors(kafka_config, "elsewhere", SystemClock())
    assert await other.cursor(holders[-1], "name-39") == "c39"


@pytest.mark.services
async def test_one_write_that_fails_costs_only_its_own_name(kafka_config: KafkaConfig) -> None:
    """All names were read again from the topic's beginning, while everybody waited."""
    kept = KeptCursors(kafka_config, "failing", SystemClock())
    ann, bob = unique("ann"), unique("bob")
    await kept.keep(ann, "a", "before")
    await kept.keep(bob, "b", "before")
    reader = kept._reader
    asked = (kept.keep(ann, "a", "x" * 4_000_000), kept.keep(bob, "b", "after"))
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in found] == [Unavailable, type(None)]
    assert kept._reader is reader, "it goes on from where it is"
    assert [kept._table.cursor(key) for key in (f"{ann}|a", f"{bob}|b")] == ["before", "after"]
    await kept.keep(ann, "a", "again")
    assert [await kept.cursor(ann, "a"), await kept.cursor(bob, "b")] == ["again", "after"]


@pytest.mark.services
async def test_the_bound_of_names_holds_for_those_who_ask_together(
    kafka_config: KafkaConfig,
) -> None:
    kept, holder = KeptCursors(kafka_config, "bound", SystemClock()), unique("ann")
    asked = [kept.keep(holder, f"name-{n}", "c") for n in range(NAMES_MAX + 5)]
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in found] == [type(None)] * NAMES_MAX + [Full] * 5


async def test_who_has_given_up_is_asked_for_no_longer() -> None:
    """Before, what nobody waited for any more was done all the same, and held up the others."""
    kept = KeptCursors(KafkaConfig(bootstrap="127.0.0.1:9"), "gone", SystemClock())
    asked_for: list[list[str]] = []
    is_busy, go_on = threading.Event(), threading.Event()

    def answers(asks: Any) -> Any:
        asked_for.append([ask.key for ask in asks])
        is_busy.set()
        assert go_on.wait(PATIENCE_S)
        return [(ask, "here") for ask in asks]

    kept._answers = answers  # type: ignore[method-assign]
    first = asyncio.create_task(kept.cursor("ann", "first"))
    await asyncio.to_thread(is_busy.wait, PATIENCE_S)
    gone = [asyncio.create_task(kept.keep("ann", f"gone-{n}", "c")) for n in range(20)]
    last = asyncio.create_task(kept.cursor("ann", "last"))
    await asyncio.sleep(0)
    for task in gone:
        task.cancel()
    await asyncio.wait(gone)
    go_on.set()
    assert [await first, await last] == ["here", "here"]
    assert asked_for == [["ann|first"], ["ann|last"]]


@pytest.mark.services
async def test_many_sockets_that_acknowledge_at_once_are_all_answered(
    access_a: Server, feed: Feed
) -> None:
    """Two hundred sockets, five acknowledgements each, all at the same time."""
    feed.send(n=5)
    name = unique("many")

    async def work(number: int) -> list[str]:
        async with talk(access_a) as socket:
            words = {"streams": [feed.name], "from_": "earliest", "name": f"{name}-{number % 50}"}
            await socket.say("subscribe", **words)
            while (said := await socket.until("subscribed", "events"))["type"] != "subscribed":
                pass
            cursors = [said["cursor"]] * 5
            acked = []
            for cursor in cursors:
                await socket.say("ack", cursor=cursor)
                found = await socket.until("acked", "problem")
                acked.append(found["type"])
            return acked

    found = await asyncio.gather(*(work(number) for number in range(200)))
    assert found == [["acked"] * 5] * 200


@pytest.mark.services
async def test_what_cannot_be_acknowledged_is_said(access_a: Server, feed: Feed) -> None:
    async with talk(access_a) as socket:
        await socket.say("subscribe", streams=[feed.name])
        await socket.say("ack", cursor="v2.x")
        problem = await socket.until("problem")
        assert (problem["code"], problem["where"]) == ("no_name", "id")
        await socket.say("subscribe", "b", streams=[feed.name], name=unique("n"))
        while (await socket.until("subscribed"))["id"] != "b":
            pass
        await socket.say("ack", "b", cursor="v2.garbage")
        problem = await socket.until("problem")
        assert problem["code"].startswith("cursor_")
        assert problem["where"] == "cursor"
        await socket.say("subscribe", "c", streams=[feed.name], name="not a name")
        assert (await socket.until("problem"))["where"] == "name"
