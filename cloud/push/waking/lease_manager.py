"""The leases of this process: the shell around `lease_state`, `agenda` and `tally`.

A lease is checked when its counter calls, when its time on the agenda has come, and after each
change; what follows is decided by pure functions and carried out here. Memory is the truth for what
happens next, Kafka for what a successor goes on with: a lease changes in memory first, is stored,
and only then anything is done about it outside. A lease has no task of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from edgewake.cloud.calls import sealing
from edgewake.cloud.push.counting import tally
from edgewake.cloud.push.guarded_tasks import GuardedTasks
from edgewake.cloud.push.leases import lease_rights, lease_state
from edgewake.cloud.push.leases.lease_writer import NotOwner
from edgewake.cloud.push.leases.wake_policy import Unseen
from edgewake.cloud.push.waking.agenda import Agenda
from edgewake.cloud.push.waking.host_turns import HostTurns
from edgewake.cloud.push.waking.relay import Relay
from edgewake.cloud.push.waking.services import Services
from edgewake.cloud.rights.rights import End
from edgewake.protocol.clock import sleep_or
from edgewake.protocol.errors import ConfigError, Unavailable
from edgewake.protocol.leases.lease_record import Lease, LeaseState

log = logging.getLogger("edgewake.push")

RETRY_KAFKA_S: Final = 1.0
"""Between attempts to store a lease while Kafka is away."""
CATCH_UP_S: Final = 5.0
"""Seconds that a lease that is far behind is counted before its wake-up goes out with the count so
far."""
WAIT_MAX_S: Final = 3600.0
"""No wait is longer, so that a wall clock that was set forward is noticed within an hour."""
TURN_S: Final = 0.005
"""Seconds of deciding before requests and calls get their turn."""
SEAL_BATCH: Final = 500
"""Leases that are sealed and stored at once after a change of the key."""
RESTORE_REPORT: Final = 10_000
"""Leases taken over per line of log."""


class Writer(Protocol):
    """Where leases of one partition are stored: a `LeaseWriter`, or what a test gives instead."""

    proved_at: float

    async def put(self, lease: Lease) -> None:
        """Store a lease; returns when it is durable. Raises Unavailable or NotOwner."""

    async def remove(self, lease_id: str) -> None:
        """Delete a lease. Raises Unavailable or NotOwner."""

    async def run(self) -> None:
        """Work until cancelled. Raises NotOwner."""


@dataclass(slots=True, eq=False)
class ManagedLease:
    """A lease and what belongs to it in this process."""

    lease: Lease
    counter: tally.Counter | None = None
    partition: int = -1
    counts_since: float = 0.0
    """On the monotonic clock."""
    is_waking: bool = False
    """It waits for its call or is being called."""
    call: asyncio.Task[None] | None = None
    slept_at: int = 0
    """When its client last said where it sleeps, ms since 1970."""

    def __post_init__(self) -> None:
        self.partition = self.lease.partition


@dataclass(slots=True)
class Partition:
    """A partition of leases that is ours."""

    writer: Writer
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    is_restored: bool = False


class LeaseManager:
    """All leases of this process. Every method runs on the event loop."""

    def __init__(
        self,
        services: Services,
        *,
        let_wake: Callable[[ManagedLease], None],
        start_wakes: Callable[[], bool],
        client_share: float,
    ) -> None:
        """`let_wake` gets leases whose wake-up is due; `start_wakes` starts some of them.

        It returns True where more can be started.
        """
        self.partitions: dict[int, Partition] = {}
        self.leases: dict[str, ManagedLease] = {}
        self.clients: Counter[str] = Counter()
        """Leases of each client."""
        self.relay = Relay(services.clock, client_share)
        """Clients that ask for their wake-ups."""
        services.rights.listen(self.relay.tell_all)
        self._watch = services.watch
        self._rights = services.rights
        self._sealer = services.sealer
        self._clock = services.clock
        self._metrics = services.metrics
        self._let_wake = let_wake
        self._start_wakes = start_wakes
        self._agenda = Agenda()
        self._changed = HostTurns()
        """Leases to look at."""
        self._stir = asyncio.Event()
        self._tasks = GuardedTasks(self._stir.set)

    # Ownership

    @property
    def is_ready(self) -> bool:
        """Has it partitions, and all of their leases?"""
        return bool(self.partitions) and all(
            partition.is_restored for partition in self.partitions.values()
        )

    def partition_owned(self, number: int, leases: Mapping[str, Lease], writer: Writer) -> None:
        """Go on with the leases of a partition."""
        self.partition_lost(number)
        partition = self.partitions[number] = Partition(writer)
        partition.tasks.append(self.spawn(self._write(writer), f"lease-writer-{number}"))
        partition.tasks.append(
            self.spawn(self._restore(number, partition, leases), f"restore-{number}")
        )
        self._metrics.partitions.set(len(self.partitions))

    def partition_lost(self, number: int) -> None:
        """Forgets the leases of a partition that another process now owns."""
        partition = self.partitions.pop(number, None)
        if partition is None:
            return
        log.info(
            "partition %d is another proxy's now",
            number,
            extra={"event": "push.lost", "partition": number},
        )
        for task in partition.tasks:
            task.cancel()
        for managed in [managed for managed in self.leases.values() if managed.partition == number]:
            self.drop(managed)
        self._metrics.partitions.set(len(self.partitions))

    async def _write(self, writer: Writer) -> None:
        try:
            await writer.run()
        except NotOwner as error:
            # Fenced while still a member: two ideas of who owns the partition. The restart settles
            # it.
            self._tasks.fail(error)

    async def _restore(
        self, number: int, partition: Partition, leases: Mapping[str, Lease]
    ) -> None:
        unknown = {
            sealing.key_of(lease.sealed)
            for lease in leases.values()
            if not self._sealer.knows(lease.sealed)
        }
        if unknown:
            raise ConfigError(
                f"leases are sealed with the keys {', '.join(sorted(unknown))}, which are not in "
                "lease_key_file"
            )
        now = self._clock.now_ms()
        for done, lease in enumerate(leases.values(), start=1):
            self.manage(ManagedLease(lease_state.taken_over(lease, now=now)))
            if done % RESTORE_REPORT == 0:
                log.info(
                    "partition %d: %d of %d leases",
                    number,
                    done,
                    len(leases),
                    extra={"event": "push.restoring"},
                )
            if done % 100 == 0:
                await asyncio.sleep(0)
        partition.is_restored = True
        # what was taken over lives long: the collector need not walk a million objects again and
        # again
        gc.freeze()
        await self._seal_anew(number)
        log.info(
            "partition %d: %d leases",
            number,
            len(leases),
            extra={"event": "push.owned", "partition": number, "leases": len(leases)},
        )

    async def _seal_anew(self, number: int) -> None:
        """Seal again with the first key, so that the key that sealed it before can be retired."""
        stale = [
            t
            for t in self.leases.values()
            if t.partition == number and not self._sealer.seals_with(t.lease.sealed)
        ]
        for first in range(0, len(stale), SEAL_BATCH):
            await asyncio.gather(*map(self._seal_one_anew, stale[first : first + SEAL_BATCH]))
        log.info(
            "partition %d: %d leases sealed with the new key",
            number,
            len(stale),
            extra={"event": "push.sealed_anew", "leases": len(stale)},
        )

    async def _seal_one_anew(self, managed: ManagedLease) -> None:
        lease = managed.lease
        try:
            endpoint = self._sealer.open(lease.id, lease.sealed)
        except sealing.Damaged as error:
            log.error("%s", error, extra={"event": "push.lease_damaged"})
            return
        managed.lease = lease.but(sealed=self._sealer.seal(lease.id, endpoint))
        # It may end meanwhile. Where the whole partition is lost, the task is cancelled.
        with contextlib.suppress(NotOwner):
            await self.store(managed)

    async def close(self) -> None:
        """Stops managing leases, which stay in Kafka."""
        for number in list(self.partitions):
            self.partition_lost(number)
        await self._tasks.cancel()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a task; its error ends the process, unless it is the loss of a partition."""
        return self._tasks.spawn(work, name)

    # Managing

    def manage(self, managed: ManagedLease) -> None:
        """Look after a lease from now on."""
        before = self.leases.get(managed.lease.id)
        if before is not None:
            self._forget_client(before.lease.client)
            self.stop_counting(before)
        self.leases[managed.lease.id] = managed
        self.clients[managed.lease.client] += 1
        self._metrics.leases.set(len(self.leases))
        self.count_anew(managed)
        self.look_at(managed.lease.id)

    def drop(self, managed: ManagedLease) -> None:
        """Look after it no more; a call that is under way is cut off."""
        if self.leases.get(managed.lease.id) is managed:
            del self.leases[managed.lease.id]
            self._forget_client(managed.lease.client)
        self._agenda.drop(managed.lease.id)
        self._changed.discard(managed.lease.id)
        self.stop_counting(managed)
        if managed.call is not None:
            managed.call.cancel()
        self.relay.tell(managed.lease.id)
        self._metrics.leases.set(len(self.leases))

    def _forget_client(self, client: str) -> None:
        self.clients[client] -= 1
        if self.clients[client] <= 0:
            del self.clients[client]

    def count_anew(self, managed: ManagedLease) -> None:
        """Count from where the lease says."""
        self.stop_counting(managed)
        lease = managed.lease
        if lease.state in (LeaseState.PAUSED, LeaseState.DISABLED):
            return
        managed.counter = tally.Counter(
            lease.id,
            streams=lease.streams,
            where=lease_rights.counted(lease.where, lease.condition),
            min_events=lease.wake.min_events,
            previews_max=lease.wake.preview_events,
            on_change=self.look_at,
            count=lease.count,
            gap=lease.gap,
        )
        managed.counts_since = self._clock.monotonic_s()
        self._watch.add(managed.counter, lease.counted_to or lease.cursor)

    def wake_now(self, managed: ManagedLease) -> bool:
        """Wake its client, whatever its policy says.

        False where the client reads, its endpoint is given up, the lease is over, or it is being
        called.
        """
        wakeable = (LeaseState.WAITING, LeaseState.NOTIFIED, LeaseState.DUE)
        if managed.is_waking or managed.lease.state not in wakeable:
            return False
        self._agenda.drop(managed.lease.id)
        self._act(managed)
        self._stir.set()
        # One whose end has come is deleted in place of being woken.
        return managed.is_waking

    def stop_counting(self, managed: ManagedLease) -> None:
        """Count for it no more."""
        if managed.counter is not None:
            self._watch.remove(managed.counter)
            managed.counter = None

    def look_at(self, lease_id: str) -> None:
        """Something about a lease has changed."""
        self.relay.tell(lease_id)
        managed = self.leases.get(lease_id)
        if managed is not None:
            self._changed.add(lease_id, managed.lease.endpoint_host)
            self._stir.set()

    async def run(self) -> None:
        """Decide and call until cancelled. Ends only by raising what killed a task."""
        while not self._tasks.failed.done():
            self._stir.clear()
            if any((self._look_at_some(), self._act_on_some(), self._start_wakes())):
                await asyncio.sleep(0)
                continue
            at = self._agenda.next_at()
            wait_s = (
                WAIT_MAX_S
                if at is None
                else min(WAIT_MAX_S, max(0.0, (at - self._clock.now_ms()) / 1000))
            )
            await self._wait(wait_s)
        await self._tasks.failed

    async def _wait(self, seconds: float) -> None:
        if self._stir.is_set():
            return
        await sleep_or(self._clock, seconds, self._stir)

    def _look_at_some(self) -> bool:
        """Plan for leases that have changed, for TURN_S at most; True where there are more."""
        until = self._clock.monotonic_s() + TURN_S
        while (lease_id := self._changed.pop()) is not None:
            managed = self.leases.get(lease_id)
            if managed is not None and not managed.is_waking:
                self._plan_next(managed)
            if self._clock.monotonic_s() > until:
                return True
        return False

    def _plan_next(self, managed: ManagedLease) -> None:
        lease, counter, now = managed.lease, managed.counter, self._clock.now_ms()
        if counter is not None and counter.failed is not None:
            self.stop_counting(managed)
            why = f"the subscription cannot be resumed: {counter.failed}"
            self._change_and_store(managed, lease_state.lost(lease, why=why))
            self.report_disabled(managed.lease)
            return
        at = lease_state.next_action_at(
            lease, Unseen() if counter is None else counter.unseen, now=now
        )
        if counter is not None and counter.is_behind and lease.state is LeaseState.WAITING:
            left_s = CATCH_UP_S - (self._clock.monotonic_s() - managed.counts_since)
            at = min(max(at, now + round(left_s * 1000)), lease.expires_at)
        if at > now:
            self._agenda.set(lease.id, at)
        else:  # at once, and not behind all others that are due at the same time
            self._agenda.drop(lease.id)
            self._act(managed)

    def _act_on_some(self) -> bool:
        """Act on leases whose time has come, for TURN_S at most; True where there are more."""
        until = self._clock.monotonic_s() + TURN_S
        for lease_id in self._agenda.due(self._clock.now_ms()):
            managed = self.leases.get(lease_id)
            if managed is not None and not managed.is_waking:
                self._act(managed)
            if self._clock.monotonic_s() > until:
                return True
        return False

    def _act(self, managed: ManagedLease) -> None:
        lease, now = managed.lease, self._clock.now_ms()
        if now >= lease.expires_at:
            self.drop(managed)
            self.spawn(self._delete(lease), f"expire-{lease.id}")
            return
        match lease.state:
            case LeaseState.PAUSED:
                self._change_and_store(managed, lease_state.left(lease))
                self.count_anew(managed)
            case LeaseState.WAITING | LeaseState.NOTIFIED:
                # Not stored here: the wake-up itself is stored before it is called, and a proxy
                # that dies between the two is followed by one that finds it due again.
                managed.lease = lease_state.due(lease)
                managed.is_waking = True
                self._let_wake(managed)
            case LeaseState.DUE:
                managed.is_waking = True
                self._let_wake(managed)
            case _:
                self._agenda.set(lease.id, lease.expires_at)

    def _change_and_store(self, managed: ManagedLease, lease: Lease) -> None:
        managed.lease = lease
        self.look_at(lease.id)
        self.spawn(self.store(managed), f"store-{lease.id}")

    def ended_right(self, managed: ManagedLease) -> End | None:
        """Why its right holds no longer: then nothing is counted or shown any more.

        None while it holds. Before a wake-up is made, and before anything is told.
        """
        lease = managed.lease
        now, has_changed = self._clock.now_ms(), self._watch.has_changed
        why = lease_rights.end_of(lease, self._rights, now=now, has_changed=has_changed)
        if why is None or not lease_state.may_be_lost(lease.state):
            return why
        facts = {"event": "push.right_ended", "why": why}
        log.info("lease %s: its right is %s", lease.id, why, extra=facts)
        self.stop_counting(managed)
        self._change_and_store(managed, lease_state.lost(lease, why=f"its right is {why}"))
        self.report_disabled(managed.lease)
        return why

    def report_disabled(self, lease: Lease) -> None:
        """An endpoint is given up."""
        log.warning(
            "lease %s: not called any more: %s",
            lease.id,
            lease.disabled,
            extra={"event": "push.disabled"},
        )
        self._metrics.disabled.inc()

    # Storing

    async def store(self, managed: ManagedLease) -> None:
        """Store the lease as it is in memory, however long Kafka is away.

        Raises NotOwner once it is not ours.
        """
        while True:
            partition = self.partitions.get(managed.partition)
            if partition is None or self.leases.get(managed.lease.id) is not managed:
                raise NotOwner("the lease is not ours any more")
            try:
                return await partition.writer.put(managed.lease)
            except Unavailable as error:
                log.warning("%s", error, extra={"event": "push.store_failed"})
                await self._clock.sleep(RETRY_KAFKA_S)

    async def _delete(self, lease: Lease) -> None:
        self._metrics.expired.inc()
        log.info(
            "lease %s expired", lease.id, extra={"event": "push.expired", "wakes": lease.wakes}
        )
        while (
            partition := self.partitions.get(lease.partition)
        ) is not None and lease.id not in self.leases:
            try:
                return await partition.writer.remove(lease.id)
            except Unavailable as error:
                log.warning("%s", error, extra={"event": "push.store_failed"})
                await self._clock.sleep(RETRY_KAFKA_S)
        return None
