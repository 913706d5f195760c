"""A client that nobody can call asks for its wake-ups: the proxy's decisions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks

from edgewake.cloud.push.leases import lease_state
from edgewake.cloud.push.proxy import Disabled, NoSuchLease, NotAsked
from edgewake.cloud.push.waking import relay as places
from edgewake.cloud.push.waking.relay import PER_LEASE_MAX
from edgewake.cloud.rights.config import RightsConfig
from edgewake.cloud.rights.rights import Rights
from edgewake.protocol.leases.lease import LeaseChange, Relay
from edgewake.protocol.leases.lease_record import LeaseState
from tests.push.builders import ManualClock, lease, request
from tests.push.proxy_world import kept, until, world
from tests.rights.forge import write
from tests.services import PATIENCE_S

RELAY = Relay(type="relay")
ANNAS_KEY = "annas-own-key-000002"


async def test_a_client_that_nobody_can_call_asks_for_its_wake_ups() -> None:
    async with world() as w:
        granted = await w.grant(endpoint=RELAY)

        async def ask(after: int, wait_s: float) -> Any:
            lease, token = granted.lease.id, granted.endpoint.token
            return await w.proxy.relayed(lease, token, after=after, wait_s=wait_s)

        assert await ask(0, 0) is None
        waiting = asyncio.create_task(ask(0, 2 * PATIENCE_S))
        await until(lambda: w.proxy._leases.relay._waiting)
        w.log.add()
        async with asyncio.timeout(PATIENCE_S):
            found = await waiting
        assert found is not None
        body = standardwebhooks.Webhook(granted.endpoint.secret).verify(
            found.body, dict(found.headers)
        )
        assert (body["count"], body["lease"]) == (1, granted.lease.id)
        again = await ask(0, 0)
        assert (again.body, again.headers["webhook-id"]) == (
            found.body,
            found.headers["webhook-id"],
        ), "what was lost on the way is there still"
        assert found.headers["webhook-id"].endswith("_1")
        assert await ask(1, 0) is None, "the client has it"
        assert w.receiver.calls == []
        w.reads(granted, cursor="c1")
        await until(lambda: kept(w).state is LeaseState.PAUSED)
        assert await ask(0, 0) is None, "it reads"


async def test_a_wake_up_at_a_relay_outlives_the_proxy() -> None:
    async with world() as w:
        granted = await w.grant(endpoint=RELAY)
        w.log.add()
        await until(lambda: kept(w).relayed is not None)
        stored = dict(w.store.leases)
    async with world(None, *stored.values()) as successor:
        lease, token = granted.lease.id, granted.endpoint.token
        found = await successor.proxy.relayed(lease, token, after=0, wait_s=PATIENCE_S)
        assert found is not None
        assert found.body == stored[lease].relayed.body


async def test_who_waits_at_a_relay_is_told_when_there_is_nothing_to_wait_for() -> None:
    async with world() as w:
        granted = await w.grant(endpoint=RELAY)
        lease, token = granted.lease.id, granted.endpoint.token

        def ask() -> asyncio.Task[Any]:
            wanted = w.proxy.relayed(lease, token, after=0, wait_s=2 * PATIENCE_S)
            return asyncio.create_task(wanted)

        oldest = ask()
        waiting = w.proxy._leases.relay._waiting
        await until(lambda: waiting)
        others = [ask() for _ in range(PER_LEASE_MAX)]
        async with asyncio.timeout(PATIENCE_S):
            assert await oldest is None, "newer ones wait in its place"
            await w.proxy.end(lease, token)
            for other in others:
                with pytest.raises(NoSuchLease):
                    await other
        assert not waiting
        called = await w.grant()
        with pytest.raises(NotAsked):
            await w.proxy.relayed(called.lease.id, called.endpoint.token, after=0, wait_s=0)
        with pytest.raises(NoSuchLease):
            await w.proxy.relayed(lease, token, after=0, wait_s=0)


async def test_who_waits_at_relays_has_a_share_of_the_places() -> None:
    relay = places.Relay(ManualClock(), client_share=0.25, waiting_max=8)
    one = [asyncio.create_task(relay.wait(lease(f"l{n}", client="one"), 9)) for n in range(2)]
    await until(lambda: len(relay._waiting) == 2)
    with pytest.raises(places.TooManyWaiting, match="as many as one client may"):
        await relay.wait(lease("l9", client="one"), 9)
    other = asyncio.create_task(relay.wait(lease("l3", client="other"), 9))
    await until(lambda: len(relay._waiting) == 3)
    for name in ("l0", "l1", "l3"):
        relay.tell(name)
    async with asyncio.timeout(PATIENCE_S):
        assert await asyncio.gather(*one, other) == [True] * 3
    assert (relay._waiting, relay._held._of.total()) == ({}, 0)


async def test_a_relay_that_wakes_nobody_any_more_says_so() -> None:
    async with world() as w:
        granted = await w.grant(endpoint=RELAY)
        managed = w.proxy._leases.leases[granted.lease.id]
        managed.lease = lease_state.lost(managed.lease, why="its stream is gone")
        with pytest.raises(Disabled, match="its stream is gone"):
            await w.proxy.relayed(granted.lease.id, granted.endpoint.token, after=0, wait_s=9)


@pytest.mark.parametrize("asks", ["relay", "look", "renew"])
async def test_whose_right_was_withdrawn_is_told_nothing_more(asks: str, tmp_path: Path) -> None:
    """A wake-up that was made before was kept for a week, and each look told how many came."""
    clock, keys = ManualClock(), write(tmp_path / "keys", f"anna everything {ANNAS_KEY}")
    rights = Rights(RightsConfig(key_file=keys), clock)
    async with world(clock, rights=rights) as w:
        reader = await rights.principal(ANNAS_KEY.encode())
        asked = request(endpoint=RELAY, wake={"min_interval_s": 0})
        granted = await w.proxy.grant(asked, reader=reader)
        lease, token = granted.lease.id, granted.endpoint.token
        w.log.add()
        await until(lambda: kept(w).relayed is not None)
        assert await w.proxy.relayed(lease, token, after=0, wait_s=0) is not None
        assert w.proxy.unseen(lease).count == 1
        write(keys, f"ben everything {ANNAS_KEY[::-1]}")
        rights.look()
        if asks == "look":
            assert w.proxy.get(lease, token).disabled == "its right is revoked"
        elif asks == "renew":
            changed = await w.proxy.change(lease, token, LeaseChange())
            assert changed.disabled == "its right is revoked"
        for after in (0, 1):
            with pytest.raises(Disabled, match="its right is revoked"):
                await w.proxy.relayed(lease, token, after=after, wait_s=0)
        w.log.add(3)
        assert w.proxy.get(lease, token).count + w.proxy.unseen(lease).count <= 1
        await until(lambda: kept(w).disabled is not None)
