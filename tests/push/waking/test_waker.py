"""What is in hand of wake-ups, however they end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from edgewake.cloud.push.waking.lease_manager import LeaseManager, ManagedLease
from edgewake.cloud.push.waking.services import Services
from edgewake.cloud.push.waking.waker import Waker
from tests.push.builders import lease


async def test_a_wake_up_that_is_cut_off_before_it_began_leaves_its_place() -> None:
    nothing: Any = SimpleNamespace(
        watch=None,
        caller=None,
        sealer=None,
        clock=None,
        rng=None,
        metrics=None,
        session_timeout_s=6,
    )
    waker = Waker(cast(Services, nothing))
    managed = ManagedLease(lease("lease-1"))
    looked_at: list[str] = []
    waker.manager = cast(
        LeaseManager,
        SimpleNamespace(
            leases={managed.lease.id: managed},
            spawn=lambda work, name: asyncio.create_task(work, name=name),
            look_at=looked_at.append,
        ),
    )
    managed.is_waking = True
    waker.let_wake(managed)
    waker.start_wakes()
    call = managed.call
    assert call is not None
    assert waker._queue.in_hand == 1
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert (waker._queue.in_hand, managed.is_waking, managed.call) == (0, False, None)
    assert looked_at == [managed.lease.id]
