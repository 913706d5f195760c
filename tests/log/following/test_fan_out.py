"""The index of readers against the plain evaluation: whatever the filters and rights, whoever
comes, leaves, reads late or is cut off between two turns, each is shown what he would be shown if
every event were tried on every filter, once, in order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.log.chunks import Chunk, Chunks
from edgewake.cloud.log.decode import DATA, GAP, WATERMARK, Decoder, Event, Record
from edgewake.cloud.log.filters.filter_keys import Keys
from edgewake.cloud.log.following.block_slots import BlockSlots
from edgewake.cloud.log.following.event_index import ENTRIES_MAX, EventIndex
from edgewake.cloud.log.following.fan_out import FanOut
from edgewake.cloud.log.following.followed import Followed, FollowedStreams
from edgewake.cloud.log.following.subscriber import Subscriber
from edgewake.cloud.log.following.turns import Turns
from edgewake.cloud.log.following.view import Shared, View
from edgewake.cloud.log.hub_bounds import HubBounds
from edgewake.cloud.log.kafka_reader import ReachedEnd
from edgewake.cloud.log.reader import Batch
from edgewake.cloud.log.replay import Block, BlockKey, OnAnswer, Replay
from edgewake.cloud.log.subscription import Plan, Positions, Source, plan
from edgewake.cloud.log.tail import RECORD_OVERHEAD_BYTES, Tail
from edgewake.cloud.log.wanted import Wanted
from edgewake.cloud.rights.names import Names
from edgewake.cloud.rights.scope import Part, Scope
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.ops.publication import Publication
from tests.examples import examples

DEVICES = ("a", "b", "c", "bus-1")
PARTITIONS = 2
NAMES = ("one", "two")

literals = st.sampled_from(["'a'", "'b'", "'c'", "''", "1", "1.0", "2", "TRUE", "NULL"])
fields = st.sampled_from(["device", "line", "stream"])
atoms = (
    st.tuples(fields, literals).map(lambda t: f"{t[0]} = {t[1]}")
    | st.tuples(literals, fields).map(lambda t: f"{t[0]} = {t[1]}")
    | st.tuples(fields, st.lists(literals, min_size=1, max_size=3)).map(
        lambda t: f"{t[0]} IN ({', '.join(t[1])})"
    )
    | st.sampled_from(["line IS TRUE", "line", "n > 1", "line IS NULL"])
    | st.sampled_from(
        [
            "device LIKE 'b%'",
            "device LIKE 'bus-_'",
            "device LIKE '%1'",
            "device LIKE 'bu!s-%' ESCAPE '!'",
            "line LIKE 'a'",
            "line LIKE ''",
            "stream LIKE 'on%'",
            "device NOT LIKE 'b%'",
            "device ILIKE 'B%'",
            "starts_with(device, 'bus')",
            "starts_with(line, '')",
        ]
    )
    | st.sampled_from(["device IN SET('some')", "line IN SET('others')", "line IN SET('none')"])
    | st.sampled_from(
        [
            "in_box(lat, lon, 0, 0, 2, 2)",
            "in_box(lat, lon, -1, 179, 1, -179)",
            "in_polygon(lat, lon, 'POLYGON((0 0, 3 0, 0 3))')",
            "distance_m(lat, lon, 0, 180) < 200000",
            "50000 > distance_m(lat, lon, 1, 1)",
        ]
    )
)
conditions = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({' AND '.join(parts)})")
        | st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({' OR '.join(parts)})")
        | inner.map(lambda part: f"NOT ({part})")
    ),
    max_leaves=4,
)
narrow = st.sampled_from(DEVICES).map(lambda device: f"device = '{device}'")
names = st.lists(st.sampled_from([*DEVICES, "bus-*", "b*1", "*"]), max_size=3).map(Names.of)
parts = st.builds(
    Part, st.none() | names, st.none() | st.lists(st.sampled_from(["line", "n"])).map(Names.of)
)
scopes = st.none() | st.lists(parts, max_size=2).map(lambda found: Scope(tuple(found)))
values: st.SearchStrategy[Any] = st.sampled_from(
    ["a", "b", "c", "", 1, 1.0, 2, True, False, None, [], {"a": 1}, 2**60, 0.5]
)
readings = st.fixed_dictionaries(
    {"device": st.sampled_from(DEVICES), "stream": st.sampled_from(NAMES)},
    optional={
        "line": values,
        "n": st.integers(0, 3),
        "lat": st.sampled_from([0, 1, 1.0, 2.5, -0.5, None, "x", True]),
        "lon": st.sampled_from([0, 1.2, 2, 179.5, -179.5, 180]),
    },
)
events = (
    st.tuples(st.just(DATA), readings)
    | st.tuples(st.just(GAP), st.sampled_from([{"device": d} for d in DEVICES] + [{}]))
    | st.tuples(st.just(WATERMARK), st.just({"query": "one", "t": 5}))
)


def event_of(kind: str, content: dict[str, Any], number: int = 0) -> Event:
    told = {**content, "seq": number}
    return Event(kind, told, orjson.dumps(told))


def source_of(name: str) -> Source:
    return Source(name, name, is_query=False, topic_id="id", partitions=PARTITIONS)


class Sets:
    """Named sets that do not change."""

    def members(self, name: str) -> frozenset[str] | None:
        return {"some": frozenset("ab"), "others": frozenset(["", "c"])}.get(name)


SETS = Sets()
PUBLICATIONS = tuple(
    Publication(
        name="p", streams=NAMES, where=where, fields=fields, version=1, changed_at=0, changed_by="x"
    )
    for where, fields in (
        (None, ("n",)),
        ("line = 'a'", None),
        ("device IN SET('some')", ("line", "lat", "lon")),
        ("in_box(lat, lon, 0, 0, 2, 2)", ("n",)),
    )
)
chosen_of = st.fixed_dictionaries(
    {},
    optional={
        "devices": st.frozensets(st.sampled_from(DEVICES), min_size=1),
        "publication": st.sampled_from(PUBLICATIONS),
        "sample": st.sampled_from([0.3, 0.7]),
    },
)


def a_plan(
    where: str | None,
    scope: Scope | None,
    streams: Sequence[str] = NAMES[:1],
    more: Mapping[str, Any] | None = None,
) -> Plan:
    return plan(
        Wanted(streams=tuple(streams), where=where, **(more or {})),
        [source_of(name) for name in streams],
        [scope for _ in streams],
        sets=SETS,
    )


@given(st.lists(st.tuples(st.none() | conditions, scopes, chosen_of), max_size=8), st.lists(events))
@settings(max_examples=examples(400))
def test_the_index_finds_all_who_are_shown_an_event(
    readers: list[tuple[str | None, Scope | None, dict[str, Any]]],
    sent: list[tuple[str, dict[str, Any]]],
) -> None:
    index: EventIndex[int] = EventIndex()
    plans = [a_plan(where, scope, NAMES[:1], more) for where, scope, more in readers]
    keyed = {i: found.keys[0] for i, found in enumerate(plans) if found.keys is not None}
    for i, keys in keyed.items():
        assert index.add(i, keys)
    for kind, content in sent:
        event = event_of(kind, content)
        found = Counter(index.find(event))
        assert set(found.values()) <= {1}
        shown = {i for i in keyed if plans[i].show(event) is not None}
        assert shown <= set(found)
    for i, keys in keyed.items():
        index.remove(i, keys)
    assert not index
    assert index._entries == 0
    assert not index._by_field


def test_an_event_is_looked_for_in_the_filters_that_can_pass_it_and_in_no_others() -> None:
    index: EventIndex[int] = EventIndex()
    for i in range(1000):
        keys = a_plan(f"device = 'car-{i}' AND n > 1", None).keys
        assert keys is not None
        index.add(i, keys[0])
    assert list(index.find(event_of(DATA, {"device": "car-7"}))) == [7]
    assert list(index.find(event_of(DATA, {"device": ["car-7"]}))) == []
    assert list(index.find(event_of(GAP, {"device": "car-8"}))) == [8]
    assert len(list(index.find(event_of(WATERMARK, {})))) == 1000


def test_how_a_text_begins_is_looked_for_once_for_each_length() -> None:
    """LIKE, `starts_with` and the patterns of a right; a reader is found once, by whatever."""
    index: EventIndex[int] = EventIndex()
    readers: list[tuple[str | None, Scope | None]] = [
        *((f"device LIKE 'line-{i:03d}-%'", None) for i in range(500)),
        ("starts_with(device, 'line-007-') OR device = 'line-007-a'", None),
        (None, Scope((Part(Names.of(["line-007*", "line-0*", "car-1"]), None),))),
        ("device LIKE 'line-007-a' AND n > 1", None),
    ]
    for i, (where, scope) in enumerate(readers):
        keys = a_plan(where, scope).keys
        assert keys is not None
        index.add(i, keys[0])
    event = event_of(DATA, {"device": "line-007-a"})
    assert Counter(index.find(event)) == Counter([7, 500, 501, 502])
    assert list(index.find(event_of(DATA, {"device": "car-1"}))) == [501]
    assert list(index.find(event_of(DATA, {"device": "line-9"}))) == []
    assert Counter(index.find(event_of(GAP, {"device": "line-008-b"}))) == Counter([8, 501])
    assert a_plan("device LIKE '%-a'", None).keys is None
    assert a_plan(None, Scope((Part(Names.of(["*-a"]), None),))).keys is None


def test_a_set_that_many_use_is_kept_once_and_what_finds_no_room_is_not_taken() -> None:
    index: EventIndex[int] = EventIndex()
    half = Keys("device", frozenset(f"car-{i}" for i in range(ENTRIES_MAX // 2 + 1)))
    other = Keys("device", frozenset(f"bus-{i}" for i in range(ENTRIES_MAX // 2 + 1)))
    assert all(index.add(i, half) for i in range(1000))
    assert not index.add(1000, other)
    assert len(list(index.find(event_of(DATA, {"device": "car-1"})))) == 1000
    for i in range(1000):
        index.remove(i, half)
    assert index.add(1000, other)


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
        self.streams = FollowedStreams(bounds, on_lost=lambda entry: None)
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


plans = st.builds(
    a_plan,
    st.one_of(st.none(), conditions, narrow, narrow),
    st.none() | scopes,
    st.sampled_from([NAMES[:1], NAMES[1:], NAMES]),
    st.just({}) | chosen_of,
)
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
    for n in range(6):
        world.send("one", 0, [(DATA, {"device": "a", "n": n})])
    entry = world.streams.by_name["one"]
    stream = next(iter(world.fan_out._streams.values()))
    assert not entry.tails[0].has(stream.looked[0]), "the look was overrun"
    world.fan_out._overrun(stream)
    assert [len(view._covered) for view in views] == [0, 1]
    await _settle(world, [before, after])
    world.send("one", 0, [(DATA, {"device": "c", "n": 1}), (DATA, {"device": "a", "n": 1})])
    await _settle(world, [before, after])
    assert (len(before.found), len(after.found)) == (7, 1)
    for reader in (before, after):
        reader.check()


async def _settle_alone(world: World, reader: Reader) -> None:
    """It has read all, while nobody looks for the others."""
    world.streams.tick()
    while not reader.subscriber.is_live:
        await asyncio.sleep(0)
