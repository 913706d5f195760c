"""Wake-ups: made, stored, called, and what the answer means for the lease.

1. the wake-up (number, body, up to where it counts) is stored in Kafka;
2. the endpoint is called, again and again if need be, always with the same id and body;
3. only when it was taken is the lease notified, in Kafka.

Many are in hand at once, so that one transaction stores the wake-ups of many leases; only step 2
takes one of the few slots for calls.

A proxy that dies between any two is followed by one that reads the lease and repeats the step. So a
wake-up may come twice, with the same webhook-id, and none is lost. The client's own cursor is never
changed here.

*Ownership is checked before each call*: by the write of step 1, or by another one where that is
longer ago than `proof_s`. What remains is a proxy that is frozen between this check and the call
itself: when it wakes up it may send one wake-up that its successor sent too (with the same id), or
one for a lease that was ended meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from edgewake.cloud.calls import sealing, webhook
from edgewake.cloud.push.leases import lease_rights, lease_state
from edgewake.cloud.push.leases.wake_policy import Unseen
from edgewake.cloud.push.waking.call_slots import CallSlots
from edgewake.cloud.push.waking.lease_manager import LeaseManager, ManagedLease
from edgewake.cloud.push.waking.services import Services
from edgewake.cloud.push.waking.wake_queue import WakeQueue
from edgewake.protocol.leases.lease_record import Lease, LeaseState, PendingWake

log = logging.getLogger("edgewake.push")

PROOFS_PER_SESSION: Final = 3
"""A proxy that last proved a third of its session ago that a partition is its own proves it again,
by a write, before it calls an endpoint: well before a silent proxy's leases are given to
another."""
BEGUN_AT_ONCE: Final = 16
"""Wake-ups that are begun before requests and calls get their turn: some 0.1 ms each."""


class Waker:
    """Calls the endpoints of leases whose wake-up is due."""

    def __init__(self, services: Services) -> None:
        self._watch = services.watch
        self._caller = services.caller
        self._sealer = services.sealer
        self._clock = services.clock
        self._rng = services.rng
        self._metrics = services.metrics
        self._proof_s = services.session_timeout_s / PROOFS_PER_SESSION
        self._queue = WakeQueue()
        self._slots = CallSlots()
        self.manager: LeaseManager

    def let_wake(self, managed: ManagedLease) -> None:
        """A lease's wake-up is due: let it wait for its call."""
        self._queue.add(managed.lease.id, managed.lease.endpoint_host)

    def start_wakes(self) -> bool:
        """Begin some wake-ups; True where more may be begun, after others had their turn."""
        for _ in range(BEGUN_AT_ONCE):
            found = self._queue.start_next()
            if found is None:
                return False
            lease_id, host = found
            managed = self.manager.leases.get(lease_id)
            if managed is None:
                self._queue.end(host)
            else:
                managed.call = self.manager.spawn(self._wake(managed, host), f"wake-{lease_id}")
                # Not in the task itself: one that is cancelled before its first step runs nothing.
                managed.call.add_done_callback(partial(self._ended, managed, host))
        return True

    async def _wake(self, managed: ManagedLease, host: str) -> None:
        is_due = managed.lease.state is LeaseState.DUE
        if is_due and self.manager.ended_right(managed) is None:
            await self._make_and_call(managed, host)

    def _ended(self, managed: ManagedLease, host: str, _: asyncio.Task[None]) -> None:
        managed.is_waking, managed.call = False, None
        self._queue.end(host)
        self.manager.look_at(managed.lease.id)

    async def _make_and_call(self, managed: ManagedLease, host: str) -> None:
        is_stored = managed.lease.pending is not None
        managed.lease = (
            lease_state.tried_again(managed.lease) if is_stored else self._with_wake_up(managed)
        )
        pending = managed.lease.pending
        assert pending is not None
        if not is_stored:
            await self.manager.store(managed)
        async with self._slots.of(host):
            await self._store_unless_proved(managed)
            if managed.lease.pending is not pending:
                return  # the client came back meanwhile
            outcome = await self._call(managed.lease, pending)
        self._metrics.calls.labels(type(outcome).__name__.lower()).inc()
        if managed.lease.pending is not pending:
            return  # the client came back while it was being called
        now = self._clock.now_ms()
        match outcome:
            case webhook.Taken():
                self._metrics.wakes.inc()
                await self._finish(
                    managed, lease_state.accepted(managed.lease, now=now, rng=self._rng)
                )
            case webhook.Gone(why):
                await self._finish(managed, lease_state.gone(managed.lease, why=why))
            case webhook.Failed(why) if webhook.is_gone(outcome, managed.lease.kind):
                await self._finish(managed, lease_state.gone(managed.lease, why=why))
            case webhook.Failed(why, retry_after_s):
                failed = lease_state.failed(
                    managed.lease, why=why, retry_after_s=retry_after_s, now=now, rng=self._rng
                )
                log.info(
                    "lease %s: %s",
                    failed.id,
                    why,
                    extra={"event": "push.call_failed", "failures": failed.failures},
                )
                await self._finish(managed, failed)

    async def _call(self, lease: Lease, pending: PendingWake) -> webhook.Outcome:
        try:
            endpoint = self._sealer.open(lease.id, lease.sealed)
        except sealing.Damaged as error:
            return webhook.Gone(str(error))
        if lease.is_relay:
            return webhook.Taken()  # it is kept in the lease until the client asks
        secrets = endpoint.signing(lease.old_secret_until, now=self._clock.now_ms())
        signed = webhook.Signed(
            secrets, webhook.wake_id(lease.id, pending.number), pending.body, endpoint.headers
        )
        return await self._caller.call(endpoint.url, signed)

    def _with_wake_up(self, managed: ManagedLease) -> Lease:
        """The lease with a wake-up for what it has not seen."""
        lease, counter, now = managed.lease, managed.counter, self._clock.now_ms()
        unseen = Unseen(lease.count, None, lease.gap) if counter is None else counter.unseen
        previews = [] if counter is None else counter.previews
        shown = lease_rights.previews(lease, previews) if previews else []
        facts = {
            "lease": lease.id,
            "cursor": lease.cursor,
            "count": unseen.count,
            "capped": unseen.capped,
            "gap": unseen.gap,
            "urgency": lease.wake.urgency,
            "again": lease.unanswered,
            "streams": list(lease.streams),
        }
        pending = PendingWake(
            number=lease.wakes + 1, body=webhook.wake_body(facts, shown, at_ms=now), made_at=now
        )
        counted_to = None if counter is None else self._watch.cursor(counter)
        if counted_to is None:
            return lease_state.stored(
                lease, pending, counted_to=lease.counted_to, count=lease.count, gap=lease.gap
            )
        return lease_state.stored(
            lease, pending, counted_to=counted_to, count=unseen.count, gap=unseen.gap
        )

    async def _store_unless_proved(self, managed: ManagedLease) -> None:
        """Before a call: the lease is ours as of `proof_s` ago at most."""
        partition = self.manager.partitions.get(managed.partition)
        proved_at = float("-inf") if partition is None else partition.writer.proved_at
        if self._clock.monotonic_s() - proved_at > self._proof_s:
            await self.manager.store(managed)

    async def _finish(self, managed: ManagedLease, lease: Lease) -> None:
        managed.lease = lease
        if lease.state is LeaseState.DISABLED:
            self.manager.stop_counting(managed)
            self.manager.report_disabled(lease)
        await self.manager.store(managed)
