"""The leases of one process: when each is looked at, what follows, and what is stored of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from edgewake.cloud.calls import webhook
from edgewake.cloud.push.leases.lease_writer import NotOwner
from edgewake.cloud.push.metrics import Metrics
from edgewake.cloud.push.waking import lease_manager
from edgewake.cloud.push.waking.lease_manager import (
    CATCH_UP_S,
    RETRY_KAFKA_S,
    WAIT_MAX_S,
    LeaseManager,
    ManagedLease,
)
from edgewake.cloud.push.waking.services import Services
from edgewake.cloud.rights.config import ANYBODY_CONFIG
from edgewake.cloud.rights.rights import Rights
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.leases.lease_record import Lease, LeaseState, partition_of
from tests.push.builders import KEY, NOW, ManualClock, lease, sealer
from tests.push.proxy_world import MemoryLog, MemoryStore, MemoryWatch

OTHER_KEY = bytes(range(32, 64))
ID = "0000abcd"


class World:
    """A manager whose wake-ups are noted and not made."""

    def __init__(self, seals: Any = None) -> None:
        self.clock = ManualClock()
        self.log, self.store = MemoryLog(self.clock), MemoryStore(self.clock)
        self.woken: list[str] = []
        services = Services(
            MemoryWatch(self.log),
            cast(webhook.Caller, None),
            seals or sealer(),
            self.clock,
            random.Random(1),
            Metrics(CollectorRegistry()),
            Rights(ANYBODY_CONFIG, self.clock),
            session_timeout_s=6,
        )
        self.manager = LeaseManager(
            services, let_wake=self.wake, start_wakes=lambda: False, client_share=1
        )
        self.running = asyncio.create_task(self.manager.run())

    def wake(self, managed: ManagedLease) -> None:
        self.woken.append(managed.lease.id)

    async def own(self, *leases: Lease) -> None:
        """All partitions of these leases."""
        self.store.leases |= {one.id: one for one in leases}
        for number in {one.partition for one in leases}:
            own = {one.id: one for one in leases if one.partition == number}
            self.manager.partition_owned(number, own, self.store)
        await self.turns()

    async def turns(self, count: int = 60) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.turns()

    @property
    def stored(self) -> Lease:
        (only,) = self.store.leases.values()
        return only

    @property
    def managed(self) -> ManagedLease:
        (only,) = self.manager.leases.values()
        return only


@asynccontextmanager
async def world(*leases: Lease, **more: Any) -> AsyncIterator[World]:
    here = World(**more)
    try:
        await here.own(*leases)
        yield here
        assert not here.running.done()
    finally:
        here.running.cancel()
        await here.manager.close()
        await asyncio.gather(here.running, return_exceptions=True)
    assert here.log.tally.counters == set(), "nothing is counted for who is gone"


def waiting(id_: str = ID, **more: Any) -> Lease:
    return lease(id_, **more)


async def test_without_partitions_it_is_not_ready_and_with_an_empty_one_it_is() -> None:
    async with world() as w:
        assert not w.manager.is_ready
        w.manager.partition_owned(3, {}, w.store)
        assert not w.manager.is_ready, "its leases are being taken over"
        await w.turns()
        assert w.manager.is_ready
        w.manager.partition_lost(3)
        w.manager.partition_lost(3)
        assert not w.manager.is_ready


async def test_an_event_wakes_and_no_event_does_not() -> None:
    async with world(waiting()) as w:
        await w.pass_time(60)
        assert w.woken == []
        w.log.add()
        await w.turns()
        assert (w.woken, w.managed.is_waking) == ([ID], True)
        w.log.add()
        await w.turns()
        assert w.woken == [ID], "it is being called already"


@pytest.mark.parametrize("early_ms", [1, 0])
async def test_a_lease_is_over_at_its_end_and_not_before(early_ms: int) -> None:
    async with world(waiting(expires_at=NOW + 10_000)) as w:
        await w.pass_time(10 - early_ms / 1000)
        assert (ID in w.manager.leases) is bool(early_ms)
        await w.turns()
        assert (ID in w.store.leases) is bool(early_ms)
        assert w.manager.clients == ({w.managed.lease.client: 1} if early_ms else {})


async def test_a_lease_that_is_over_is_deleted_however_long_kafka_is_away() -> None:
    async with world(waiting(expires_at=NOW + 1_000)) as w:
        w.store.is_away = True
        await w.pass_time(1)
        for _ in range(3):
            await w.pass_time(RETRY_KAFKA_S)
        assert list(w.store.leases) == [ID]
        w.store.is_away = False
        await w.pass_time(RETRY_KAFKA_S)
        assert w.store.leases == {}


async def test_a_lease_that_is_granted_again_meanwhile_is_not_deleted_as_the_one_that_was() -> None:
    async with world(waiting(expires_at=NOW + 1_000)) as w:
        w.store.is_away = True
        await w.pass_time(1)
        w.store.is_away = False
        again = waiting()
        w.store.leases[ID] = again
        w.manager.manage(ManagedLease(again))
        await w.pass_time(RETRY_KAFKA_S)
        assert w.store.leases == {ID: again}


async def test_no_wait_is_longer_than_an_hour_so_that_a_clock_set_forward_is_noticed() -> None:
    async with world(waiting(expires_at=NOW + 86_400_000)) as w:
        w.clock._began_ms += 90_000_000
        await w.pass_time(WAIT_MAX_S)
        assert w.manager.leases == {}


async def test_an_operator_wakes_who_waits_and_neither_who_is_called_nor_who_reads() -> None:
    async with world(waiting()) as w:
        assert w.manager.wake_now(w.managed)
        assert not w.manager.wake_now(w.managed), "it is being called"
        assert w.woken == [ID]
    for state in (LeaseState.PAUSED, LeaseState.DISABLED):
        async with world(waiting(state=state)) as w:
            assert not w.manager.wake_now(w.managed)


async def test_an_operator_who_wakes_a_lease_at_its_end_is_told_that_nobody_is_woken() -> None:
    async with world(waiting(expires_at=NOW + 1_000)) as w:
        managed = w.managed
        w.clock.advance(1)  # and nobody has looked since
        assert not w.manager.wake_now(managed)
        assert w.woken == []
        await w.turns()
        assert w.store.leases == {}


async def test_a_lease_that_is_far_behind_is_counted_for_a_while_before_its_client_is_woken() -> (
    None
):
    async with world() as w:
        w.log.add()
        behind = waiting()
        await w.own(behind)
        w.woken.clear()
        w.managed.is_waking = False
        w.managed.lease = behind
        counter = w.managed.counter
        assert counter is not None
        counter.is_behind = True
        w.manager.look_at(ID)
        await w.turns()
        await w.pass_time(CATCH_UP_S - 0.01)
        assert w.woken == []
        await w.pass_time(0.01)
        assert w.woken == [ID]


async def test_whose_subscription_cannot_be_resumed_is_given_up_with_the_reason() -> None:
    async with world(waiting()) as w:
        counter = w.managed.counter
        assert counter is not None
        counter.fail("its stream is gone")
        await w.turns()
        assert w.managed.counter is None
        assert "its stream is gone" in (w.stored.disabled or "")
        await w.pass_time(3600)
        assert w.woken == []


async def test_a_lease_is_stored_as_it_is_when_kafka_is_back() -> None:
    async with world(waiting()) as w:
        w.store.is_away = True
        storing = w.manager.spawn(w.manager.store(w.managed), "store")
        await w.turns()
        w.managed.lease = w.managed.lease.but(cursor="c7")
        w.store.is_away = False
        await w.pass_time(RETRY_KAFKA_S)
        await storing
        assert w.stored.cursor == "c7"


async def test_what_went_to_another_process_is_stored_by_it_alone() -> None:
    async with world(waiting()) as w:
        managed = w.managed
        w.manager.partition_lost(managed.partition)
        with pytest.raises(NotOwner):
            await w.manager.store(managed)
        assert (w.manager.leases, w.manager.clients) == ({}, {})


async def test_leases_of_an_unknown_key_end_the_process_with_the_name_of_the_key() -> None:
    here = World()
    await here.own(waiting(seals=sealer(OTHER_KEY)))
    with pytest.raises(ConfigError, match="which are not in lease_key_file"):
        await here.running
    await here.manager.close()


async def test_one_that_ends_while_all_are_sealed_anew_keeps_no_other_from_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The old key was retired then, and the next start failed: some were sealed with it still."""
    monkeypatch.setattr(lease_manager, "SEAL_BATCH", 1)
    both = sealer(OTHER_KEY, KEY)
    ids = [id_ for id_ in map(str, range(1000)) if partition_of(id_) == 0][:4]
    async with world(seals=both) as w:
        w.store.is_away = True
        await w.own(*(waiting(id_, seals=sealer(KEY)) for id_ in ids))
        ended = w.manager.leases[ids[0]]
        w.manager.drop(ended)
        w.store.leases.pop(ids[0])
        w.store.is_away = False
        await w.pass_time(RETRY_KAFKA_S)
        for id_ in ids[1:]:
            assert both.seals_with(w.store.leases[id_].sealed)
        assert ids[0] not in w.store.leases


async def test_who_manages_a_lease_again_counts_its_client_once() -> None:
    async with world(waiting(client="c")) as w:
        w.manager.manage(ManagedLease(w.managed.lease))
        assert w.manager.clients == {"c": 1}
        w.manager.drop(w.managed)
        assert (w.manager.clients, w.manager.leases) == ({}, {})
