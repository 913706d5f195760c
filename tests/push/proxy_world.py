"""A proxy with its store, log and watch in memory, and a receiver that is a real HTTP server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from prometheus_client import CollectorRegistry

from edgewake.cloud.calls.webhook import Caller
from edgewake.cloud.log.decode import DATA, Event
from edgewake.cloud.log.named import UnknownPublication
from edgewake.cloud.push.counting.tally import Counter, Tally
from edgewake.cloud.push.metrics import Metrics
from edgewake.cloud.push.proxy import (
    Proxy,
)
from edgewake.cloud.push.waking.services import Services
from edgewake.cloud.rights.config import ANYBODY_CONFIG
from edgewake.cloud.rights.principal import ANYBODY, Principal
from edgewake.cloud.rights.rights import Rights
from edgewake.protocol.clock import Clock, SystemClock
from edgewake.protocol.errors import CursorError, Unavailable
from edgewake.protocol.leases import lease_record
from edgewake.protocol.leases.lease import Subscription
from edgewake.protocol.leases.lease_read import LeaseRead, hash_token
from edgewake.protocol.leases.lease_record import PARTITIONS, Lease
from edgewake.protocol.ops.publication import Publication
from tests.push.builders import ManualClock, random_bytes, request, sealer
from tests.push.receiver import Receiver, receiving
from tests.services import PATIENCE_S


@dataclass
class MemoryStore:
    """All partitions of a table of leases, which can die before or after any of its writes."""

    clock: Clock
    leases: dict[str, Lease] = field(default_factory=dict)
    writes: int = 0
    dies_at: tuple[int, str] | None = None
    dead: asyncio.Event = field(default_factory=asyncio.Event)
    proved_at: float = float("-inf")
    is_away: bool = False
    holds: Callable[[Lease], bool] = lambda _: False
    """Writes that take until this says no any more."""
    held: int = 0

    async def put(self, lease: Lease) -> None:
        await self._write(lease.id, lease)

    async def remove(self, lease_id: str) -> None:
        await self._write(lease_id, None)

    async def _write(self, key: str, stored: Lease | None) -> None:
        if self.is_away:
            raise Unavailable("Kafka is away")
        self.writes += 1
        await self._maybe_die("before")
        await asyncio.sleep(0)
        while stored is not None and self.holds(stored):
            self.held += 1
            await asyncio.sleep(0.001)
        if stored is None:
            self.leases.pop(key, None)
        else:
            self.leases[key] = lease_record.decode(lease_record.encode(stored))
        self.proved_at = self.clock.monotonic_s()
        await self._maybe_die("after")

    async def _maybe_die(self, when: str) -> None:
        if self.dies_at == (self.writes, when):
            self.dead.set()
            await asyncio.Event().wait()

    async def run(self) -> None:
        await asyncio.Event().wait()


class MemoryLog:
    """A log of events 1, 2, 3 …, seen at once; a cursor is `c<number of events passed>`."""

    def __init__(self, clock: Clock) -> None:
        self.events = 0
        self.earliest = 0
        self.tally = Tally(None)
        self._clock = clock

    def add(self, count: int = 1) -> None:
        for _ in range(count):
            self.events += 1
            for _ in self.tally.add(event_of(self.events), self._clock.now_ms()):
                pass

    async def check(
        self, subscription: Subscription, cursor: str, client: str, reader: Principal
    ) -> None:
        if not cursor.startswith("c"):
            raise CursorError("garbage", "not a cursor")

    def add_counter(self, counter: Counter, cursor: str) -> None:
        at = int(cursor[1:])
        if at < self.earliest:
            at = self.earliest
            counter.mark_gap()
        for n in range(at, self.events):
            if not counter.is_fed:
                counter.see(event_of(n + 1), self._clock.now_ms())
        counter.set_swept(self.events - at, is_final=True)
        counter.attach(self.tally)
        counter.on_change(counter.lease_id)


@dataclass
class MemoryWatch:
    log: MemoryLog

    async def check(
        self, subscription: Subscription, cursor: str, client: str, reader: Principal
    ) -> None:
        await self.log.check(subscription, cursor, client, reader)

    async def things(
        self, streams: tuple[str, ...], reader: Principal
    ) -> Mapping[str, Sequence[str]]:
        return dict.fromkeys(streams, ("device",))

    async def published(self, name: str, reader: Principal) -> Publication:
        raise UnknownPublication(name, [])

    async def check_sets(self, subscription: Subscription, reader: Principal) -> None:
        pass

    def has_changed(self, publication: str, version: int) -> bool:
        return False

    def add(self, counter: Counter, cursor: str) -> None:
        self.log.add_counter(counter, cursor)

    def remove(self, counter: Counter) -> None:
        counter.detach()

    def cursor(self, counter: Counter) -> str | None:
        return f"c{self.log.events}"


def event_of(n: int) -> Event:
    return Event(DATA, {"n": n}, orjson.dumps({"n": n}))


@dataclass
class World:
    """A proxy and what is around it."""

    log: MemoryLog
    store: MemoryStore
    receiver: Receiver
    clock: Clock
    proxy: Proxy

    async def grant(
        self, *, cursor: str = "c0", idempotency_key: str | None = None, **more: Any
    ) -> Any:
        more.setdefault("wake", {"min_interval_s": 0})
        return await self.proxy.grant(
            request(url=self.receiver.url, cursor=cursor, **more),
            idempotency_key,
            reader=ANYBODY,
        )

    def reads(self, granted: Any, *, cursor: str | None = None, **more: Any) -> None:
        """The client reads by SSE."""
        read = {
            "token_hash": hash_token(granted.endpoint.token),
            "at": self.clock.now_ms(),
            "streams": ("s",),
            "cursor": cursor,
        } | more
        self.proxy.client_reads(granted.lease.id, LeaseRead(**read))


def calls(clock: Clock) -> Caller:
    # A call that hangs does so for longer than a test waits: what must not wait for it would never
    # end.
    return Caller(clock, allow_hosts=["127.0.0.1", "localhost"], timeout_s=2 * PATIENCE_S)


@asynccontextmanager
async def proxying(
    log: MemoryLog, store: MemoryStore, clock: Clock, caller: Caller, **more: Any
) -> AsyncIterator[Proxy]:
    """A running proxy that has all partitions."""
    partitions = more.pop("partitions", range(PARTITIONS))
    metrics = Metrics(CollectorRegistry())
    services = Services(
        MemoryWatch(log),
        caller,
        more.pop("sealer", sealer()),
        clock,
        random.Random(1),
        metrics,
        more.pop("rights", None) or Rights(ANYBODY_CONFIG, clock),
        session_timeout_s=6,
    )
    proxy = Proxy(services, random_bytes=random_bytes, leases_max=more.pop("leases_max", 10))
    running = asyncio.create_task(proxy.run())
    for number in partitions:
        proxy.partition_owned(
            number,
            {key: lease for key, lease in store.leases.items() if lease.partition == number},
            store,
        )
    try:
        await until(lambda: proxy.is_ready or not partitions or running.done())
        yield proxy
    finally:
        running.cancel()
        await proxy.close()
        await asyncio.gather(running, return_exceptions=True)


@asynccontextmanager
async def world(clock: Clock | None = None, *leases: Lease, **more: Any) -> AsyncIterator[World]:
    clock = clock or SystemClock()
    async with receiving() as receiver:
        caller = calls(clock)
        log, store = MemoryLog(clock), MemoryStore(clock)
        store.leases |= {lease.id: lease for lease in leases}
        async with proxying(log, store, clock, caller, **more) as proxy:
            yield World(log, store, receiver, clock, proxy)
        assert log.tally.counters == set()


def kept(world: World) -> Lease:
    (only,) = world.store.leases.values()
    return only


async def until(condition: Any, what: str = "the condition holds") -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


async def pass_time(w: World, condition: Any, *, within_s: float = 40 * 86_400) -> None:
    """Let time jump from one time at which something is due to the next until the condition
    holds.
    """
    clock, manager = w.clock, w.proxy._leases
    assert isinstance(clock, ManualClock)
    end = clock.monotonic_s() + within_s
    async with asyncio.timeout(PATIENCE_S):
        await settle(w)
        while not condition():
            at = manager._agenda.next_at()
            assert at is not None, "nothing will happen any more"
            clock.advance(max(0.0, (at - clock.now_ms()) / 1000))
            assert clock.monotonic_s() <= end, "it has not happened in time"
            await settle(w)


async def settle(w: World) -> None:
    """Let everything happen that is due."""
    manager = w.proxy._leases
    quiet = 0
    while quiet < 3:
        await asyncio.sleep(0.0005)
        busy = manager._changed or any(managed.is_waking for managed in manager.leases.values())
        quiet = 0 if busy else quiet + 1
