"""The proxy's own decisions, with a real HTTP receiver; the log and the table of leases are small ones in memory."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from edgewake.cloud.push.endpoint import EndpointRefused
from edgewake.cloud.push.metrics import Metrics
from edgewake.cloud.push.proxy import NoSuchLease, Proxy, Standby, TooManyLeases
from edgewake.cloud.push.wake_policy import COUNT_MAX, GIVE_UP_AFTER_S, GIVE_UP_TRIES_MIN
from edgewake.cloud.push.watch import Seen
from edgewake.cloud.push.webhook import Caller
from edgewake.protocol.clock import Clock, FakeClock, SystemClock
from edgewake.protocol.errors import CursorError
from edgewake.protocol.lease import Lease, LeaseRequest, Subscription
from tests.push.builders import lease, request
from tests.push.receiver import Receiver, receiving


class Died(Exception):
    """The process is gone."""


@dataclass
class MemoryStore:
    """A table of leases that can die before or after any of its writes."""

    leases: dict[str, Lease] = field(default_factory=dict)
    writes: int = 0
    dies_at: tuple[int, str] | None = None
    dead: asyncio.Event = field(default_factory=asyncio.Event)

    async def put(self, lease: Lease) -> None:
        await self._write(lease.id, lease)

    async def remove(self, lease_id: str) -> None:
        await self._write(lease_id, None)

    async def _write(self, key: str, kept: Lease | None) -> None:
        self.writes += 1
        await self._maybe_die("before")
        if kept is None:
            self.leases.pop(key, None)
        else:
            self.leases[key] = Lease.model_validate_json(kept.model_dump_json())
        await self._maybe_die("after")

    async def _maybe_die(self, when: str) -> None:
        if self.dies_at == (self.writes, when):
            self.dead.set()
            await asyncio.Event().wait()

    async def run(self) -> None:
        await asyncio.Event().wait()


class MemoryLog:
    """A log of events 1, 2, 3 …; a cursor is `c<number of events passed>`."""

    def __init__(self) -> None:
        self.events = 0
        self.earliest = 0
        self.open_watches = 0
        self.news = asyncio.Event()

    def add(self, count: int = 1) -> None:
        self.events += count
        self.news.set()
        self.news = asyncio.Event()

    async def open(self, subscription: Subscription, cursor: str) -> MemoryWatched:
        if not cursor.startswith("c"):
            raise CursorError("garbage", "not a cursor")
        self.open_watches += 1
        return MemoryWatched(self, int(cursor[1:]))


@dataclass
class MemoryWatched:
    log: MemoryLog
    at: int

    async def next(self, *, previews_max: int) -> Seen:
        while self.at >= self.log.events and self.at >= self.log.earliest:
            await self.log.news.wait()
        gap = self.at < self.log.earliest
        self.at = max(self.at, self.log.earliest)
        end = min(self.log.events, self.at + 4000)
        previews = [{"n": n + 1} for n in range(self.at, end)[: max(0, previews_max)]]
        seen = Seen(f"c{end}", end - self.at, previews, None, gap, end < self.log.events)
        self.at = end
        return seen

    def close(self) -> None:
        self.log.open_watches -= 1

    def skip_to_end(self) -> str:
        self.at = self.log.events
        return f"c{self.at}"


@dataclass
class World:
    """A proxy and what is around it."""

    log: MemoryLog
    store: MemoryStore
    receiver: Receiver
    clock: Clock
    proxy: Proxy

    async def grant(self, *, cursor: str = "c0", **more: Any) -> Any:
        more.setdefault("wake", {"min_interval_s": 0})
        return await self.proxy.grant(request(url=self.receiver.url, cursor=cursor, **more))


@asynccontextmanager
async def calling(clock: Clock) -> AsyncIterator[Caller]:
    caller = Caller(clock, allow_hosts=["127.0.0.1"])
    try:
        yield caller
    finally:
        await caller.close()


def make_proxy(log: MemoryLog, clock: Clock, caller: Caller, **more: Any) -> Proxy:
    numbers = itertools.count(1)
    return Proxy(
        log,
        caller,
        clock,
        rng=random.Random(1),
        random_bytes=lambda n: next(numbers).to_bytes(n, "big"),
        leases_max=more.pop("leases_max", 10),
        metrics=Metrics(CollectorRegistry()),
    )


@asynccontextmanager
async def world(clock: Clock | None = None, **more: Any) -> AsyncIterator[World]:
    clock = clock or SystemClock()
    async with receiving() as receiver, calling(clock) as caller:
        log, store = MemoryLog(), MemoryStore()
        proxy = make_proxy(log, clock, caller, **more)
        proxy.owned({}, store)
        try:
            yield World(log, store, receiver, clock, proxy)
        finally:
            await proxy.close()
            assert log.open_watches == 0


def kept(world: World) -> Lease:
    (only,) = world.store.leases.values()
    return only


async def until(condition: Any, what: str = "the condition holds") -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_lease_is_kept_before_it_is_granted_and_an_event_wakes() -> None:
    async with world() as w:
        granted = await w.grant()
        assert kept(w) == granted.lease
        w.log.add()
        (call,) = await w.receiver.got(1)
        body = call.verified(granted.lease.secret)
        facts = {name: body[name] for name in ("type", "lease", "cursor", "count", "capped", "gap", "streams", "events")}
        assert facts == {
            "type": "edgewake.wake",
            "lease": granted.lease.id,
            "cursor": "c0",
            "count": 1,
            "capped": False,
            "gap": False,
            "streams": ["s"],
            "events": [{"n": 1}],
        }


async def test_events_that_came_before_the_lease_wake_too() -> None:
    async with world() as w:
        w.log.add(3)
        await w.grant(cursor="c1")
        (call,) = await w.receiver.got(1)
        assert b'"count":2' in call.body


async def test_the_place_moves_only_after_the_wake_up_was_taken() -> None:
    async with world(FakeClock()) as w:
        places: list[str | None] = []
        w.receiver.answer = lambda n: (places.append(kept(w).woken_to), (500 if n < 3 else 200, {}))[1]
        await w.grant()
        w.log.add()
        await until(lambda: kept(w).woken_to == "c1")
        assert places == [None] * 4
        assert {call.id for call in w.receiver.calls} == {f"msg_{kept(w).id}_1"}
        assert len({call.body for call in w.receiver.calls}) == 1


async def test_later_wake_ups_count_everything_after_the_clients_cursor() -> None:
    async with world() as w:
        granted = await w.grant()
        for n in range(1, 4):
            w.log.add()
            await w.receiver.got(n)
        bodies = [call.verified(granted.lease.secret) for call in w.receiver.calls]
        assert [(body["count"], body["cursor"]) for body in bodies] == [(1, "c0"), (2, "c0"), (3, "c0")]
        assert len({call.id for call in w.receiver.calls}) == 3


async def test_more_than_is_counted_is_said_and_not_told_again() -> None:
    async with world() as w:
        w.log.add(COUNT_MAX * 3)
        granted = await w.grant()
        (call,) = await w.receiver.got(1)
        body = call.verified(granted.lease.secret)
        assert (COUNT_MAX <= body["count"] < COUNT_MAX * 3, body["capped"]) == (True, True)
        await until(lambda: kept(w).woken_to == f"c{COUNT_MAX * 3}")


async def test_a_lost_range_is_told_as_a_gap() -> None:
    async with world() as w:
        w.log.events = w.log.earliest = 50
        granted = await w.grant(cursor="c10", wake={"min_events": 5})
        (call,) = await w.receiver.got(1)
        assert call.verified(granted.lease.secret)["gap"] is True


async def test_a_client_that_is_far_behind_is_told_how_far_and_not_only_of_the_first_batch() -> None:
    async with world() as w:
        w.log.add(9000)
        granted = await w.grant()
        (call,) = await w.receiver.got(1)
        assert call.verified(granted.lease.secret)["count"] == 9000


async def test_an_endpoint_that_is_gone_is_called_once_and_never_again() -> None:
    async with world(FakeClock()) as w:
        w.receiver.answer = lambda _: (410, {})
        granted = await w.grant()
        w.log.add()
        await until(lambda: kept(w).disabled == "the endpoint answered 410")
        w.log.add(5)
        await asyncio.sleep(0.05)
        assert len(w.receiver.calls) == 1
        assert w.proxy.get(granted.lease.id, granted.token).disabled == "the endpoint answered 410"


@pytest.mark.parametrize("more", [{}, {"retry-after": "0"}, {"retry-after": "1"}, {"retry-after": "999999999"}])
async def test_an_endpoint_that_fails_is_tried_for_three_days_whatever_it_asks_for_and_then_given_up(more: dict[str, str]) -> None:
    clock = FakeClock()
    async with world(clock) as w:
        times: list[int] = []
        w.receiver.answer = lambda _: (times.append(clock.now_ms()), (503, more))[1]
        await w.grant(ttl_s=2_000_000)
        w.log.add()
        await until(lambda: kept(w).disabled is not None)
        assert times[-1] - times[0] >= GIVE_UP_AFTER_S * 1000
        assert GIVE_UP_TRIES_MIN <= len(times) <= 15


async def test_retry_after_is_kept() -> None:
    clock = FakeClock()
    async with world(clock) as w:
        times: list[int] = []
        w.receiver.answer = lambda n: (times.append(clock.now_ms()), (429, {"retry-after": "100"}) if n == 0 else (200, {}))[1]
        await w.grant()
        w.log.add()
        await w.receiver.got(2)
        assert 100_000 <= times[1] - times[0] <= 110_000


async def test_after_the_end_was_answered_no_wake_up_is_started() -> None:
    async with world() as w:
        granted = await w.grant()
        await w.proxy.end(granted.lease.id, granted.token)
        w.log.add(5)
        await asyncio.sleep(0.1)
        assert (w.receiver.connections, w.store.leases) == (0, {})
        with pytest.raises(NoSuchLease):
            w.proxy.get(granted.lease.id, granted.token)


async def test_a_lease_can_be_ended_while_its_call_hangs() -> None:
    async with world() as w:
        w.receiver.answer = lambda _: None
        granted = await w.grant()
        w.log.add()
        await w.receiver.got(1)
        async with asyncio.timeout(2):
            await w.proxy.end(granted.lease.id, granted.token)


@pytest.mark.parametrize("token", ["", "wrong", "0" * 48])
async def test_a_lease_is_for_who_holds_its_token(token: str) -> None:
    async with world() as w:
        granted = await w.grant()
        with pytest.raises(NoSuchLease):
            w.proxy.get(granted.lease.id, token)
        with pytest.raises(NoSuchLease):
            await w.proxy.end(granted.lease.id, token)
        assert len(w.store.leases) == 1


async def test_a_lease_that_is_over_is_dropped() -> None:
    async with world() as w:
        over = lease("over", request=request(url=w.receiver.url, cursor="c0"), expires_at=1)
        w.store.leases["over"] = over
        w.proxy.owned({"over": over}, w.store)
        await until(lambda: not w.store.leases)
        assert w.receiver.connections == 0


async def test_what_cannot_be_granted_leaves_nothing_behind() -> None:
    async with world() as w:
        with pytest.raises(CursorError):
            await w.grant(cursor="x")
        with pytest.raises(EndpointRefused):
            await w.proxy.grant(request(url="http://10.0.0.1/", cursor="c0"))
        assert w.store.leases == {}


async def test_leases_are_bounded() -> None:
    async with world(leases_max=2) as w:
        await w.grant()
        await w.grant()
        with pytest.raises(TooManyLeases):
            await w.grant()


async def test_a_proxy_that_stands_by_grants_nothing() -> None:
    async with world() as w:
        w.proxy.lost()
        with pytest.raises(Standby):
            await w.grant()


async def test_a_proxy_that_loses_the_leases_stops_calling() -> None:
    async with world() as w:
        await w.grant()
        w.proxy.lost()
        w.log.add()
        await asyncio.sleep(0.1)
        assert w.receiver.connections == 0


@pytest.mark.parametrize(("at", "when"), [(at, when) for at in range(1, 6) for when in ("before", "after")])
async def test_a_death_at_any_write_loses_no_wake_up_and_repeats_one_with_the_same_id(at: int, when: str) -> None:
    """Writes: 1 the lease, 2 the fixed wake-up, 3 its place, 4 and 5 the same of the second wake-up."""
    async with receiving() as receiver, calling(SystemClock()) as caller:
        log, store, clock = MemoryLog(), MemoryStore(dies_at=(at, when)), SystemClock()
        first = make_proxy(log, clock, caller)
        first.owned({}, store)
        granting = asyncio.create_task(first.grant(request(url=receiver.url, cursor="c0", wake={"min_interval_s": 0})))
        log.add()
        feeding = asyncio.create_task(_feed_second(receiver, log))
        await asyncio.wait_for(store.dead.wait(), 10)
        await first.close()
        granted = granting.done() and not granting.cancelled()
        granting.cancel()
        store.dies_at = None
        second = make_proxy(log, clock, caller)
        second.owned(dict(store.leases), store)
        try:
            if not store.leases:
                assert not granted  # then the client was told nothing, and sleeps not
                return
            await until(lambda: all(lease.woken_to == "c2" for lease in store.leases.values()))
        finally:
            await second.close()
            await asyncio.wait_for(feeding, 5) if store.leases else feeding.cancel()
        (only,) = store.leases.values()
        bodies: dict[str, set[bytes]] = {}
        for call in receiver.calls:
            call.verified(only.secret)
            bodies.setdefault(call.id, set()).add(call.body)
        assert all(len(same) == 1 for same in bodies.values())
        assert len(receiver.calls) - len(bodies) <= 1
        assert b'"count":2' in receiver.calls[-1].body


async def _feed_second(receiver: Receiver, log: MemoryLog) -> None:
    await receiver.got(1)
    log.add()


def test_a_request_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="extra_forbidden"):
        LeaseRequest.model_validate(request().model_dump(mode="json") | {"more": 1})
