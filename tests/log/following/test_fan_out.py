"""The index of readers against the plain evaluation: whatever the filters and rights, whoever
comes, leaves, reads late or is cut off between two turns, each is shown what he would be shown if
every event were tried on every filter, once, in order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.log.chunks import Chunk, Chunks
from edgewake.cloud.log.decode import DATA, Decoder, Record
from edgewake.cloud.log.following.block_slots import BlockSlots
from edgewake.cloud.log.following.fan_out import Candidate, FanOut
from edgewake.cloud.log.following.followed import Followed, FollowedStreams
from edgewake.cloud.log.following.subscriber import Subscriber
from edgewake.cloud.log.following.turns import Turns
from edgewake.cloud.log.following.view import MISSED_MAX, Shared, View
from edgewake.cloud.log.hub_bounds import HubBounds
from edgewake.cloud.log.kafka_reader import ReachedEnd
from edgewake.cloud.log.reader import Batch
from edgewake.cloud.log.replay import Block, BlockKey, OnAnswer, Replay
from edgewake.cloud.log.subscription import Plan, Positions
from edgewake.cloud.log.tail import RECORD_OVERHEAD_BYTES, Tail
from edgewake.protocol.clock import SystemClock
from tests.examples import examples
from tests.log.following.strategies import (
    NAMES,
    PARTITIONS,
    a_plan,
    event_of,
    events,
    plans,
    source_of,
)


class Numbers:
    """An encoding: the numbers of the events."""

    name = "numbers"
    event_bytes = 100

    def encode(self, batch: Batch) -> tuple[list[int], int]:
        return [step.event.fields["seq"] for step in batch.steps], len(batch.steps)


class Kept:
    """Older records, all kept, and read at once."""

    def __init__(self, log: dict[tuple[str, int], list[Record]]) -> None:
        self._log = log
        self.asked = 0

    def at_hand(self, key: BlockKey) -> Block | None:
        return None

    def ask(self, key: BlockKey, on_answer: OnAnswer) -> None:
        self.asked += 1
        found = [record for record in self._log[key[0], key[2]] if record.offset >= key[3]]
        block = Block(found, found[-1].offset + 1 if found else key[3], 1)
        asyncio.get_running_loop().call_soon(on_answer, block)


class StepClock(SystemClock):
    """Each look at it takes `step`, so that turns end in the middle of things."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def monotonic_s(self) -> float:
        self.now += self.step
        return self.now


class World:
    """Streams with their tails, views over them, and readers; the part of the hub that Kafka has no
    share in.
    """

    def __init__(self, step: float, tail_bytes: int) -> None:
        bounds = HubBounds(tail_bytes=tail_bytes, tails_bytes=tail_bytes * 2)
        self.log: dict[tuple[str, int], list[Record]] = {
            (name, p): [] for name in NAMES for p in range(PARTITIONS)
        }
        self.streams = FollowedStreams(
            bounds,
            on_lost=lambda entry: None,
            is_looked_at=lambda tails, partition: self.fan_out.has_looked_at_oldest(
                tails, partition
            ),
        )
        self.failed: list[BaseException] = []
        clock = StepClock(step)
        decoder = Decoder(1 << 24)
        self.turns = Turns(clock, budget_s=1.0, on_error=self.failed.append)
        self.replay = Kept(self.log)
        self.cohorts = 0
        self.shared = Shared(
            decoder,
            cast(Replay, self.replay),
            BlockSlots(100),
            Chunks(1 << 20),
            self.turns,
            clock,
            horizon=lambda: self.streams.horizon,
            call_later=lambda seconds, call: asyncio.get_running_loop().call_soon(call),
            on_cohorts=self.count,
        )
        self.fan_out = FanOut(decoder, self.turns, horizon=lambda: self.streams.horizon)
        for name in NAMES:
            tails = [Tail(0) for _ in range(PARTITIONS)]
            self.streams.add(Followed(source_of(name), tails, [0] * PARTITIONS))
        self.views: dict[int, View[list[int]]] = {}
        self.number = 0
        self.time = 0

    def count(self, change: int) -> None:
        self.cohorts += change

    def send(self, name: str, partition: int, sent: list[tuple[str, dict[str, Any]]]) -> None:
        entry = self.streams.by_name[name]
        found = []
        for kind, content in sent:
            self.number += 1
            found.append(event_of(kind, content, self.number))
        self.time += 1
        end = entry.tails[partition].end
        what = Record(end, self.time, b"x" * 10, is_result=False, order=self.time, decoded=found)
        self.log[name, partition].append(what)
        numbers = {name: entry.assignment}
        self.streams.add_batch(numbers, [(name, partition, what)])
        if self.number % 3 == 0:  # a transaction's marker takes an offset, too
            self.streams.add_batch(numbers, [(name, partition, ReachedEnd(end + 2))])

    def tick(self) -> None:
        for view in self.streams.tick():
            view.on_records()
        self.fan_out.on_tick()

    def view(self, which: int, chosen: Plan) -> View[list[int]]:
        if which not in self.views:
            entries = [self.streams.by_name[source.name] for source in chosen.sources]

            def on_empty() -> None:
                self.fan_out.remove(made)
                del self.views[which]
                for entry in entries:
                    entry.unindexed.discard(made)

            made: View[list[int]] = View(
                chosen, [e.tails for e in entries], Numbers(), self.shared, on_empty=on_empty
            )
            made.lookout = self.fan_out.add(made, entries)
            if made.lookout is None:
                for entry in entries:
                    entry.unindexed.add(made)
            self.views[which] = made
        return self.views[which]


class Reader:
    """One client: it reads when told, and knows what it should have been shown."""

    def __init__(self, world: World, which: int, chosen: Plan, *, from_begin: bool = False) -> None:
        self.world, self.plan = world, chosen
        self.start: Positions = tuple(
            ((0, 0),) * PARTITIONS if from_begin else world.streams.by_name[source.name].live()
            for source in chosen.sources
        )
        self.found: list[int] = []
        self.wakes = 0
        self.subscriber: Subscriber[list[int]] = world.view(which, chosen).subscribe(
            self.start, self.woken
        )

    def woken(self) -> None:
        self.wakes += 1

    def read(self) -> None:
        while True:
            item = self.subscriber.next()
            if not isinstance(item, Chunk):
                assert item is None
                return
            self.found += item.content or []

    def shown_after(self, positions: Positions) -> list[int]:
        return [
            event.fields["seq"]
            for i, (source, row) in enumerate(zip(self.plan.sources, positions, strict=True))
            for p, position in enumerate(row)
            for record in self.world.log[source.topic, p]
            for n, event in enumerate(record.decoded or ())
            if (record.offset, n) >= position and self.plan.show(event, i) is not None
        ]

    def check(self) -> None:
        """It can be cut off now: what it has and what it would go on with is all, and each once."""
        behind = self.shown_after(self.subscriber.positions)
        assert Counter(self.found) + Counter(behind) == Counter(self.shown_after(self.start))


steps = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 1), st.integers(0, 1), st.lists(events, min_size=1)),
    st.tuples(st.just("send"), st.integers(0, 1), st.integers(0, 1), st.lists(events, min_size=1)),
    st.tuples(st.just("tick"), st.just(0), st.just(0), st.just(0)),
    st.tuples(st.just("tick"), st.just(0), st.just(0), st.just(0)),
    st.tuples(st.just("turns"), st.integers(1, 4), st.just(0), st.just(0)),
    st.tuples(st.just("come"), st.integers(0, 5), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("read"), st.integers(0, 9), st.just(0), st.just(0)),
    st.tuples(st.just("leave"), st.integers(0, 9), st.just(0), st.just(0)),
)


@given(
    st.lists(plans, min_size=6, max_size=6),
    st.lists(steps, max_size=60),
    st.sampled_from([0.0, 0.05, 0.15]),
    st.sampled_from([1 << 20, 4 * (RECORD_OVERHEAD_BYTES + 10)]),
)
@settings(max_examples=examples(600))
def test_what_is_delivered_is_what_the_plain_evaluation_shows(
    chosen: list[Plan], story: list[Any], step: float, tail_bytes: int
) -> None:
    asyncio.run(_tell(chosen, story, step, tail_bytes))


async def _tell(chosen: list[Plan], story: list[Any], step: float, tail_bytes: int) -> World:
    world = World(step, tail_bytes)
    readers = [Reader(world, 0, chosen[0])]
    for what, a, b, more in story:
        if what == "send":
            world.send(NAMES[a], b, more)
        elif what == "tick":
            world.tick()
        elif what == "turns":
            for _ in range(a):
                await asyncio.sleep(0)
        elif what == "come":
            readers.append(Reader(world, a, chosen[a], from_begin=bool(b)))
            readers[-1].read()
        elif readers:
            reader = readers[a % len(readers)]
            reader.read()
            if what == "leave":
                reader.check()
                readers.remove(reader)
                reader.subscriber.close()
        for reader in readers:
            reader.check()
    await _settle(world, readers)
    for reader in readers:
        reader.check()
        assert Counter(reader.found) == Counter(reader.shown_after(reader.start))
    for reader in readers:
        reader.subscriber.close()
    assert not world.views
    assert not world.fan_out.views
    assert not world.fan_out._streams
    assert world.failed == []
    return world


async def _settle(world: World, readers: list[Reader]) -> None:
    """All has been read once nothing moves any more."""
    world.tick()
    for _ in range(5000):
        found = sum(len(reader.found) for reader in readers)
        for reader in readers:
            reader.read()
        for _ in range(20):
            await asyncio.sleep(0)
        is_all = all(reader.subscriber.is_live for reader in readers)
        if (
            is_all
            and found == sum(len(reader.found) for reader in readers)
            and not world.turns._live
        ):
            return
    raise AssertionError("something goes on for ever")


def test_what_nobody_asks_for_costs_no_filter_a_try() -> None:
    asyncio.run(_thousand_clients())


async def _thousand_clients() -> None:
    world = World(0.0, 1 << 22)
    readers = [
        Reader(world, i, a_plan(f"device = 'car-{i}' AND n >= 0", None)) for i in range(1000)
    ]
    for reader in readers:
        reader.read()
    await _settle(world, readers)
    made = sum(view.chunks_made for view in world.views.values())
    for n in range(50):
        world.send("one", n % 2, [(DATA, {"device": f"car-{i}", "n": n}) for i in range(5)])
        world.tick()
        for _ in range(5):
            await asyncio.sleep(0)
        for reader in readers[:5]:
            reader.read()
    await _settle(world, readers)
    assert [len(reader.found) for reader in readers[:6]] == [50] * 5 + [0]
    assert world.fan_out.looked_at == 250
    assert world.fan_out.candidates == 250
    assert sum(view.chunks_made for view in world.views.values()) - made == 250
    assert {reader.wakes for reader in readers[5:]} == {readers[-1].wakes}
    assert readers[-1].subscriber.positions == readers[0].subscriber.positions


def test_what_came_since_the_last_tick_is_shown_to_who_begins_to_be_looked_for_before_it() -> None:
    asyncio.run(_late_tick())


async def _late_tick() -> None:
    """The look begins behind a record that no reader may read before its tick.

    A client that goes on from its cursor then reads all up to the tick, and waits.
    """
    world = World(0.0, 1 << 20)
    for n in range(2):
        world.send("one", 0, [(DATA, {"device": "a", "n": n})])
    world.tick()
    world.send("one", 0, [(DATA, {"device": "a", "n": 2})])
    reader = Reader(world, 0, a_plan("device = 'a'", None), from_begin=True)
    while not reader.subscriber.is_live:
        reader.read()
        await asyncio.sleep(0)
    assert len(reader.found) == 2
    await _settle(world, [reader])
    reader.check()
    assert len(reader.found) == 3


def test_who_has_passed_what_is_in_memory_no_more_waits_on() -> None:
    asyncio.run(_overrun())


async def _overrun() -> None:
    """Records came faster than they were looked at: who stands before them reads on, nobody else.

    The turns of a slow machine end after each step, so the look stands where it was.
    """
    size = RECORD_OVERHEAD_BYTES + 10
    world = World(0.0, 8 * size)
    before = Reader(world, 0, a_plan("device = 'a'", None))
    before.read()
    await _settle(world, [before])
    for n in range(6):
        world.send("one", 0, [(DATA, {"device": "b", "n": n})])
    after = Reader(world, 1, a_plan("device = 'c'", None))
    after.read()
    await _settle_alone(world, after)
    views = [world.views[number] for number in (0, 1)]
    assert [len(view._covered) for view in views] == [1, 1]
    for n in range(14):  # more than all streams together may keep
        world.send("one", 0, [(DATA, {"device": "a", "n": n})])
    entry = world.streams.by_name["one"]
    stream = next(iter(world.fan_out._streams.values()))
    assert not entry.tails[0].has(stream.looked[0]), "the look was overrun"
    world.fan_out._overrun(stream)
    assert [len(view._covered) for view in views] == [0, 1]
    await _settle(world, [before, after])
    world.send("one", 0, [(DATA, {"device": "c", "n": 1}), (DATA, {"device": "a", "n": 1})])
    await _settle(world, [before, after])
    assert (len(before.found), len(after.found)) == (15, 1)
    for reader in (before, after):
        reader.check()


def test_what_is_yet_to_be_looked_at_stays_in_memory_and_nobody_reads_it_by_himself() -> None:
    """Else thousands of views read all of it each, and the server never comes along again."""
    asyncio.run(_late_look())


async def _late_look() -> None:
    world = World(0.0, 8 * (RECORD_OVERHEAD_BYTES + 10))
    reader = Reader(world, 0, a_plan("device = 'a'", None))
    await _settle(world, [reader])
    (view,) = world.views.values()
    view.reader = _refuse  # type: ignore[method-assign]
    for n in range(14):
        world.send("one", 0, [(DATA, {"device": "a", "n": n})])
    assert len(world.streams.by_name["one"].tails[0]) == 14
    await _settle(world, [reader])
    assert (len(reader.found), world.failed, world.replay.asked) == (14, [], 0)
    world.send("one", 0, [(DATA, {"device": "b", "n": 1})])
    assert len(world.streams.by_name["one"].tails[0]) == 8, "what is looked at gives way"


async def _settle_alone(world: World, reader: Reader) -> None:
    """It has read all, while nobody looks for the others."""
    world.streams.tick()
    while not reader.subscriber.is_live:
        await asyncio.sleep(0)


def test_what_is_found_while_a_reader_writes_waits_for_it_and_nobody_reads_all() -> None:
    asyncio.run(_busy_reader())


async def _busy_reader() -> None:
    world = World(0.0, 1 << 20)
    reader = Reader(world, 0, a_plan("device = 'a'", None))
    await _settle(world, [reader])
    (view,) = world.views.values()
    view.reader = _refuse  # type: ignore[method-assign]
    for n in range(MISSED_MAX + 1):
        world.send("one", 0, [(DATA, {"device": "a", "n": n}), (DATA, {"device": "b", "n": n})])
        world.tick()
        await _some_turns()
    assert not reader.found, "it writes what it got before"
    for _ in range(3):
        reader.read()
        await _some_turns()
    assert len(reader.found) == MISSED_MAX + 1
    assert reader.subscriber.is_live
    assert not world.failed


def _refuse(_: Positions) -> Any:
    raise AssertionError("it reads by itself")


async def _some_turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_what_a_reader_has_read_before_it_was_found_leads_nobody_in_circles() -> None:
    asyncio.run(_found_late())


async def _found_late() -> None:
    world = World(0.0, 1 << 20)
    reader = Reader(world, 0, a_plan("device = 'a'", None))
    await _settle(world, [reader])
    (view,) = world.views.values()
    world.send("one", 0, [(DATA, {"device": "a", "n": 1})])
    world.tick()
    await _some_turns()
    item = reader.subscriber.next()
    assert isinstance(item, Chunk)
    assert view.lookout is not None
    old = Candidate(world.log["one", 0][-1].decoded[0], 0, 0, (0, 0), (1, 0))  # type: ignore[index]
    view.on_found([old], view.lookout.end, view.lookout.end_key)
    for _ in range(3):
        reader.read()
        await _some_turns()
    assert reader.found == []
    assert reader.subscriber.is_live
    another = view.subscribe(item.end, lambda: None)
    assert another.next() is None
    await _settle(world, [reader])
    assert another.is_live
    assert not world.failed
