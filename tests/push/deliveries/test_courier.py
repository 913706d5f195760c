"""One delivery's courier on a real hub over streams in memory: what it sends, stores and repeats,
whatever happens between two of its steps.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import orjson
import pytest
from prometheus_client import CollectorRegistry

from edgewake.cloud.calls import webhook
from edgewake.cloud.calls.sealing import Endpoint, Sealer
from edgewake.cloud.push.chosen import kept
from edgewake.cloud.push.deliveries.courier import AGAIN_S, Courier, Services
from edgewake.cloud.push.deliveries.delivery_state import REFUSALS_MAX
from edgewake.cloud.push.guarded_tasks import GuardedTasks
from edgewake.cloud.push.metrics import Metrics
from edgewake.cloud.rights.config import ANYBODY_CONFIG
from edgewake.cloud.rights.principal import ANYBODY
from edgewake.cloud.rights.rights import Rights
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.leases.delivery_record import (
    Delivery,
    DeliveryState,
    Letter,
    Pending,
    decode_delivery,
)
from tests.log.memory_hub import MemoryHub, turns, until
from tests.push.builders import KEY, SECRET, ManualClock, MemoryRows, sealer

OTHER_KEY = bytes(range(32, 64))
PROOF_S = 1.0
Answer = Callable[[dict[str, Any]], webhook.Outcome]


class Rows(MemoryRows):
    """Rows that can be away, and take as long as they are held up."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.tries = 0
        self.held_up = ""
        """Rows with keys that begin so wait until they may go on."""
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def put_row(self, key: str, value: bytes | None) -> None:
        self.tries += 1
        if key.startswith(self.held_up):
            await self.may_go_on.wait()
        if self.is_away:
            raise Unavailable("Kafka is away")
        await super().put_row(key, value)

    @property
    def stored(self) -> Delivery:
        """The delivery as a successor would find it."""
        return decode_delivery(self.kept["delivery|ab"])


class Endpoints:
    """Calls that are answered by the test, one after the other."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.ids: list[str] = []
        self.answer: Answer = lambda body: webhook.Taken()
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def call(self, url: str, signed: webhook.Signed) -> webhook.Outcome:
        self.bodies.append(orjson.loads(signed.body))
        self.ids.append(signed.message_id)
        await self.may_go_on.wait()
        return self.answer(self.bodies[-1])

    @property
    def numbers(self) -> list[list[int]]:
        """The readings of each call."""
        return [[event["seq"] for event in body["events"]] for body in self.bodies]


class World:
    """A courier and what is around it."""

    def __init__(self, seals: Sealer | None = None, **changes: Any) -> None:
        self.clock, self.rows, self.endpoint = ManualClock(), Rows(), Endpoints()
        self.memory = MemoryHub(clock=self.clock)
        self.seals = seals or sealer()
        self.tasks = GuardedTasks()
        self.services = Services(
            self.memory.hub,
            cast(webhook.Caller, self.endpoint),
            self.seals,
            Rights(ANYBODY_CONFIG, self.clock),
            self.clock,
            random.Random(1),
            Metrics(CollectorRegistry()),
            proof_s=PROOF_S,
        )
        sealed = self.seals.seal("ab", Endpoint("http://127.0.0.1/hook", SECRET, ""))
        self.delivery = Delivery(
            id="ab",
            owner="o",
            name="mine",
            streams=("s",),
            cursor=changes.pop("cursor", ""),
            endpoint_host="127.0.0.1",
            sealed=changes.pop("sealed", sealed),
            wait_s=0,
            created_at=0,
            changed_at=0,
            **changes,
        )
        self.courier: Courier

    async def begin(self) -> None:
        """Start the courier where the stream begins."""
        cursor = self.delivery.cursor or await self.cursor()
        self.courier = Courier(self.delivery.but(cursor=cursor), self.rows, self.services)
        self.courier.start(self.tasks.spawn)

    async def cursor(self, offset: int = 0) -> str:
        """The cursor before a record."""
        hub = self.memory.hub
        plan = await hub.open(kept(hub, self.delivery), ANYBODY)
        try:
            return hub.codec.encode(plan.cursor((((offset, 0),),)))
        finally:
            hub.close(plan)

    async def until(self, condition: Callable[[], Any]) -> None:
        """Let time pass until it holds."""
        for _ in range(10_000):
            if condition():
                return
            await turns()
            self.clock.advance(0.25)
        raise AssertionError(f"it never holds: {self.courier.delivery}, {self.courier.trouble}")


@asynccontextmanager
async def world(**changes: Any) -> AsyncIterator[World]:
    here = World(**changes)
    try:
        yield here
    finally:
        if hasattr(here, "courier"):
            here.courier.abandon()
        await here.tasks.cancel()
        assert not here.tasks.failed.done()
        assert here.memory.failed is None
        assert len(here.memory.hub.views) == 0, "it left the hub"


def refused(_: dict[str, Any]) -> webhook.Outcome:
    return webhook.Failed("it was answered 400", None, 400)


async def test_a_batch_is_stored_before_it_is_called_and_its_cursor_after_it_was_taken() -> None:
    async with world() as w:
        w.memory.send({"n": 1}, {"n": 2})
        seen: list[tuple[Pending | None, int]] = []

        def answer(body: dict[str, Any]) -> webhook.Outcome:
            seen.append((w.rows.stored.pending, body["batch"]))
            return webhook.Taken()

        w.endpoint.answer = answer
        await w.begin()
        await w.until(lambda: w.rows.kept and w.rows.stored.events == 2)
        ((pending, number),) = seen
        assert pending is not None
        assert (pending.number, number) == (1, 1)
        assert (w.rows.stored.pending, w.rows.stored.cursor) == (None, pending.to)
        assert w.endpoint.numbers == [[1, 2]]


async def test_an_empty_stream_calls_nobody_and_stores_nothing() -> None:
    async with world() as w:
        await w.begin()
        await w.until(lambda: w.clock.monotonic_s() > 60)
        assert (w.endpoint.bodies, w.rows.tries, w.courier.trouble) == ([], 0, "")


@pytest.mark.parametrize(("most", "expected"), [(1, [[1], [2], [3]]), (3, [[1, 2, 3]])])
async def test_a_batch_has_as_many_events_as_it_may(most: int, expected: list[list[int]]) -> None:
    async with world(events_max=most) as w:
        w.memory.send({}, {}, {})
        await w.begin()
        await w.until(lambda: w.courier.delivery.events == 3)
        assert w.endpoint.numbers == expected


async def test_a_successor_repeats_the_batch_in_hand_with_its_id_and_goes_on() -> None:
    async with world() as w:
        w.memory.send({}, {})
        w.endpoint.may_go_on.clear()  # it dies while it calls
        await w.begin()
        await until(lambda: w.endpoint.ids)
        w.courier.abandon()
        await turns()
        w.memory.send({})
        w.endpoint.may_go_on.set()
        w.courier = Courier(w.rows.stored, w.rows, w.services)
        w.courier.start(w.tasks.spawn)
        await w.until(lambda: w.courier.delivery.events == 3)
        assert w.endpoint.numbers == [[1, 2], [1, 2], [3]]
        assert w.endpoint.ids[0] == w.endpoint.ids[1]


async def test_a_batch_in_hand_of_a_stream_that_was_recreated_is_not_made_once_more() -> None:
    async with world() as w:
        w.memory.send({})
        to = await w.cursor(1)
        w.memory.close_stream()
        w.memory.follow("s", topic_id="another")
        w.memory.send({"n": 5})
        w.delivery = w.delivery.but(cursor=to, pending=Pending(1, to, 0), batches=1)
        await w.begin()
        await w.until(lambda: w.courier.delivery.events)
        assert w.courier.delivery.pending is None
        assert w.endpoint.bodies[0]["batch"] == 2
        assert w.endpoint.bodies[0]["events"][0]["reason"] == "epoch"


async def test_stop_waits_for_the_call_and_keeps_what_the_answer_says() -> None:
    async with world() as w:
        w.memory.send({})
        w.endpoint.may_go_on.clear()
        await w.begin()
        await until(lambda: w.endpoint.ids)
        stopping = asyncio.create_task(w.courier.stop())
        await turns()
        assert not stopping.done()
        w.endpoint.may_go_on.set()
        await stopping
        assert (w.courier.delivery.events, w.courier.delivery.pending) == (1, None)
        await w.courier.stop()  # twice is once


async def test_stop_while_nothing_comes_or_while_it_waits_to_try_again_is_at_once() -> None:
    async with world() as w:
        await w.begin()
        await turns()
        await w.courier.stop()
        w.endpoint.answer = lambda _: webhook.Failed("it was answered 503", None, 503)
        w.courier.start(w.tasks.spawn)
        w.memory.send({})
        await w.until(lambda: w.courier.delivery.failures == 1)
        await turns()
        await w.courier.stop()
        assert w.courier.delivery.pending is not None


async def test_who_is_stopped_while_it_cannot_prove_its_partition_calls_nobody() -> None:
    """The partition may be another's, which calls the same endpoint with what comes next."""
    async with world() as w:
        w.memory.send({})
        w.endpoint.answer = lambda _: webhook.Failed("it was answered 503", None, 503)
        await w.begin()
        await w.until(lambda: w.courier.delivery.failures == 1)
        w.rows.is_away, tries = True, w.rows.tries
        w.clock.advance(PROOF_S + 60)
        await until(lambda: w.rows.tries > tries)
        await turns()
        stopping = asyncio.create_task(w.courier.stop())
        await turns()
        w.clock.advance(AGAIN_S)
        await stopping
        assert len(w.endpoint.ids) == 1
        assert w.courier.delivery.pending is not None, "its batch is in hand still"


async def test_what_has_ended_is_shown_so_only_once_it_is_stored() -> None:
    """A kill between the two would let it go on, though its owner was told that it had ended."""
    async with world() as w:
        w.memory.send({})
        w.endpoint.answer = lambda _: webhook.Gone("it was answered 410")
        w.endpoint.may_go_on.clear()
        await w.begin()
        await until(lambda: w.endpoint.ids)
        w.rows.is_away = True
        w.endpoint.may_go_on.set()
        await turns()
        assert w.courier.delivery.state is DeliveryState.ACTIVE
        stopping = asyncio.create_task(w.courier.stop())
        await turns()
        w.clock.advance(AGAIN_S)
        await stopping
        assert w.courier.delivery.state is DeliveryState.ACTIVE
        assert w.rows.stored.state is DeliveryState.ACTIVE
        w.rows.is_away = False
        w.courier.start(w.tasks.spawn)
        await w.until(lambda: w.courier.delivery.state is DeliveryState.ENDED)
        assert w.rows.stored.why == "it was answered 410"


async def test_the_one_event_that_is_refused_becomes_a_letter_and_the_others_arrive() -> None:
    def answer(body: dict[str, Any]) -> webhook.Outcome:
        is_bad = any(event["seq"] == 2 for event in body["events"])
        return refused(body) if is_bad else webhook.Taken()

    async with world() as w:
        w.memory.send({}, {}, {}, {})
        w.endpoint.answer = answer
        await w.begin()
        await w.until(lambda: w.courier.delivery.events == 3)
        (letter,) = w.courier.letters.values()
        assert orjson.loads(letter.event)["seq"] == 2
        assert w.endpoint.numbers.count([2]) == REFUSALS_MAX
        assert w.rows.kept.keys() == {"delivery|ab", letter.key}


async def begun_behind_a_loss(w: World, partitions: int) -> None:
    """Start the courier at a cursor of which a record of each partition is kept no more."""
    w.memory.close_stream()
    w.memory.follow("s", partitions=partitions)
    for partition in range(partitions):
        w.memory.send({}, partition=partition)
        w.memory.send({}, partition=partition)
    hub = w.memory.hub
    plan = await hub.open(kept(hub, w.delivery), ANYBODY)
    w.delivery = w.delivery.but(cursor=hub.codec.encode(plan.cursor((((0, 0),) * partitions,))))
    hub.close(plan)
    for partition in range(partitions):
        w.memory.trim(1, partition=partition)
    await w.begin()


async def test_gaps_that_an_endpoint_refuses_become_letters_and_it_is_not_called_without_end() -> (
    None
):
    """They came in one batch that no halving made smaller: it was sent again and again, at once."""

    def answer(body: dict[str, Any]) -> webhook.Outcome:
        return refused(body) if any("$event" in one for one in body["events"]) else webhook.Taken()

    async with world() as w:
        w.endpoint.answer = answer
        await begun_behind_a_loss(w, 3)
        await turns(200)
        assert len(w.endpoint.bodies) < 10, "it waits between attempts"
        await w.until(lambda: w.courier.delivery.events == 3)
        letters = [orjson.loads(letter.event) for letter in w.courier.letters.values()]
        assert [letter["partition"] for letter in letters] == [0, 1, 2]


async def test_gaps_come_as_many_at_once_as_events_may_each_once() -> None:
    async with world(events_max=2) as w:
        await begun_behind_a_loss(w, 3)
        await w.until(lambda: w.courier.delivery.events == 6)
        found = [one.get("partition", "reading") for b in w.endpoint.bodies for one in b["events"]]
        assert found == [0, 1, 2, "reading", "reading", "reading"]
        assert max(len(body["events"]) for body in w.endpoint.bodies) == 2


async def test_who_dies_between_two_gaps_is_followed_by_one_that_tells_the_rest() -> None:
    async with world(events_max=1) as w:
        w.endpoint.answer = lambda body: (
            webhook.Taken() if body["batch"] == 1 else webhook.Failed("it was answered 500")
        )
        await begun_behind_a_loss(w, 3)
        await w.until(lambda: w.courier.delivery.failures)
        w.courier.abandon()
        await turns()
        w.endpoint.bodies.clear()
        w.endpoint.answer = lambda body: webhook.Taken()
        w.courier = Courier(w.rows.stored, w.rows, w.services)
        w.courier.start(w.tasks.spawn)
        await w.until(lambda: w.courier.delivery.events == 6)
        found = [one.get("partition", "reading") for b in w.endpoint.bodies for one in b["events"]]
        assert found == [1, 2, "reading", "reading", "reading"]


async def test_what_was_sealed_anew_while_a_letter_was_stored_stays_sealed_anew() -> None:
    """Its row went back to the old key, which was then retired: nobody could open it any more."""
    new = sealer(OTHER_KEY, KEY)
    old = sealer(KEY).seal("ab", Endpoint("http://127.0.0.1/hook", SECRET, ""))
    async with world(seals=new, sealed=old) as w:
        w.memory.send({})
        w.endpoint.answer = refused
        await w.begin()
        await w.until(lambda: w.courier.delivery.failures == REFUSALS_MAX - 1)
        w.rows.held_up = "letter"
        w.rows.may_go_on.clear()
        await w.until(lambda: w.courier.letters)
        sealing = asyncio.create_task(w.courier.seal_anew())
        await turns()
        w.rows.may_go_on.set()
        await sealing
        await w.until(lambda: w.rows.stored.pending is None)
        assert new.seals_with(w.courier.delivery.sealed)
        assert new.seals_with(w.rows.stored.sealed)


async def test_one_that_is_deleted_while_it_waits_to_store_is_not_stored_after_that() -> None:
    """Sealed anew while Kafka was away it came back from the dead, and its endpoint was called."""
    new = sealer(OTHER_KEY, KEY)
    old = sealer(KEY).seal("ab", Endpoint("http://127.0.0.1/hook", SECRET, ""))
    async with world(seals=new, sealed=old) as w:
        await w.begin()
        w.rows.is_away = True
        sealing = asyncio.create_task(w.courier.seal_anew())
        await turns()
        assert w.rows.tries == 1
        w.courier.abandon()
        w.rows.is_away = False
        await w.rows.put_row(w.delivery.key, None)
        w.clock.advance(AGAIN_S)
        await sealing
        assert w.rows.kept == {}


def letter_of(w: World) -> Letter:
    letter = Letter("ab", 7, '{"seq":9}', "c", "refused", 0)
    w.courier.letters[7] = letter
    w.rows.kept[letter.key] = b"it is there"
    return letter


@pytest.mark.parametrize("first", ["drop", "replay"])
async def test_a_letter_that_is_dropped_while_it_is_replayed_is_gone(first: str) -> None:
    """Whichever is stored first: it was shown for ever, or came back with the next server."""
    async with world() as w:
        await w.begin()
        letter = letter_of(w)
        w.endpoint.answer = refused
        w.rows.may_go_on.clear()
        if first == "replay":
            replaying = asyncio.create_task(w.courier.replay(letter))
            await turns()
            dropping = asyncio.create_task(w.courier.drop(w.courier.letters[7]))
        else:
            dropping = asyncio.create_task(w.courier.drop(letter))
            await turns()
            replaying = asyncio.create_task(w.courier.replay(letter))
        await turns()
        w.rows.may_go_on.set()
        await asyncio.gather(replaying, dropping)
        assert w.courier.letters == {}
        assert letter.key not in w.rows.kept


@pytest.mark.parametrize("what", ["drop", "replay"])
async def test_a_letter_is_what_it_was_where_kafka_cannot_store_what_became_of_it(
    what: str,
) -> None:
    async with world() as w:
        await w.begin()
        letter = letter_of(w)
        w.rows.is_away = True
        w.endpoint.answer = refused
        asked = w.courier.drop(letter) if what == "drop" else w.courier.replay(letter)
        with pytest.raises(Unavailable):
            await asked
        assert w.courier.letters == {7: letter}


async def test_a_letter_that_is_taken_is_one_no_more_and_one_that_is_refused_counts_its_tries() -> (
    None
):
    async with world() as w:
        await w.begin()
        letter = letter_of(w)
        w.endpoint.answer = refused
        await w.courier.replay(letter)
        again = w.courier.letters[7]
        assert again == replace(letter, tries=letter.tries + 1, error="it was answered 400")
        w.endpoint.answer = lambda _: webhook.Taken()
        await w.courier.replay(again)
        assert (w.courier.letters, letter.key in w.rows.kept) == ({}, False)
        assert [body.get("replayed") for body in w.endpoint.bodies] == [True, True]


async def test_while_its_stream_or_its_key_is_away_it_says_so_and_then_goes_on() -> None:
    async with world() as w:
        await w.begin()
        await turns()
        w.memory.close_stream()
        await w.until(lambda: w.courier.trouble)
        assert w.courier.trouble == "its topic was recreated"
        w.memory.follow("s")
        w.memory.send({"n": 1})
        await w.until(lambda: w.courier.delivery.events)
        await w.until(lambda: not w.courier.trouble)


async def test_what_no_retry_cures_ends_it_with_the_reason() -> None:
    async with world(cursor="garbage") as w:
        await w.begin()
        await w.until(lambda: w.courier.delivery.state is DeliveryState.ENDED)
        assert "cursor" in (w.rows.stored.why or "")
        assert w.endpoint.ids == []
