"""The proxy's operations for clients: grant, show, change, end and pause leases.

The proxy holds the leases of its partitions of `ew.leases` (`lease_manager`), and wakes their
clients (`waker`).
"""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from edgewake.cloud.calls import webhook
from edgewake.cloud.calls.sealing import Endpoint
from edgewake.cloud.client_share import Bound
from edgewake.cloud.log.wanted import wanted
from edgewake.cloud.push.chosen import checked, names_of
from edgewake.cloud.push.leases import lease_choice, lease_requests, lease_rights, lease_state
from edgewake.cloud.push.leases.lease_choice import LeaseChoice
from edgewake.cloud.push.leases.lease_writer import NotOwner
from edgewake.cloud.push.leases.wake_policy import Unseen
from edgewake.cloud.push.waking.lease_manager import LeaseManager, ManagedLease, Writer
from edgewake.cloud.push.waking.services import Services
from edgewake.cloud.push.waking.waker import Waker
from edgewake.cloud.rights.principal import ANYBODY, Principal
from edgewake.protocol.errors import EdgewakeError, Unavailable
from edgewake.protocol.leases import lease_record
from edgewake.protocol.leases.chosen import Chosen
from edgewake.protocol.leases.lease import (
    LeaseChange,
    LeaseEndpoint,
    LeaseRequest,
    Subscription,
    Webhook,
)
from edgewake.protocol.leases.lease_read import LeaseRead, hash_token
from edgewake.protocol.leases.lease_record import RELAY_HOST, Lease, LeaseState, PendingWake
from edgewake.protocol.ops.proof import Kind


class Standby(EdgewakeError):
    """The proxy does not have the leases now, or not yet."""


class Elsewhere(EdgewakeError):
    """Another proxy has the partition."""

    def __init__(self, partition: int, waits_s: float = 0) -> None:
        """`waits_s`: how long the answer of the other one may take."""
        super().__init__("another proxy has this lease")
        self.partition = partition
        self.waits_s = waits_s


class TooManyLeases(EdgewakeError):
    """The bound on leases is reached."""


class NoSuchLease(EdgewakeError):
    """No lease of this id, or not with this token."""


class KeyUsedBefore(EdgewakeError):
    """An Idempotency-Key came with another request than before."""


class NotAsked(EdgewakeError):
    """A lease whose endpoint is called has no wake-ups to ask for."""


class Disabled(EdgewakeError):
    """A lease that wakes nobody any more."""


@dataclass(frozen=True, slots=True)
class Relayed:
    """A wake-up that was asked for, signed as a call is."""

    headers: Mapping[str, str]
    body: str


@dataclass(frozen=True, slots=True)
class Granted:
    """A lease that was asked for, with what nobody else learns."""

    lease: Lease
    endpoint: Endpoint
    is_new: bool


@dataclass(slots=True)
class _Granting:
    """Requests of one lease that are granted one after the other."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    """Those who have the lock or wait for it; the last of them forgets it."""


class Proxy:
    """The leases of this process. Every method runs on the event loop."""

    def __init__(
        self,
        services: Services,
        *,
        random_bytes: Callable[[int], bytes],
        leases_max: int,
        client_share: float = 1,
    ) -> None:
        self._watch = services.watch
        self._caller = services.caller
        self._sealer = services.sealer
        self._clock = services.clock
        self._metrics = services.metrics
        self._random_bytes = random_bytes
        self._bound = Bound("leases", leases_max, client_share)
        self._granting: dict[str, _Granting] = {}
        self._granting_to: Counter[str] = Counter()
        waker = Waker(services)
        self._leases = waker.manager = LeaseManager(
            services,
            let_wake=waker.let_wake,
            start_wakes=waker.start_wakes,
            client_share=client_share,
        )

    @property
    def is_ready(self) -> bool:
        """Has it partitions, and all of their leases?"""
        return self._leases.is_ready

    @property
    def partitions(self) -> list[int]:
        """The partitions that this proxy has."""
        return sorted(self._leases.partitions)

    def partition_owned(self, number: int, leases: Mapping[str, Lease], writer: Writer) -> None:
        """Go on with the leases of a partition."""
        self._leases.partition_owned(number, leases, writer)

    def partition_lost(self, number: int) -> None:
        """The leases of a partition are another's."""
        self._leases.partition_lost(number)

    async def run(self) -> None:
        """Decide and call until cancelled. Ends only by raising what killed a task."""
        await self._leases.run()

    async def close(self) -> None:
        """Stop; the leases stay in Kafka."""
        await self._leases.close()

    async def grant(
        self,
        request: LeaseRequest,
        idempotency_key: str | None = None,
        *,
        address: str = "",
        reader: Principal,
    ) -> Granted:
        """Take a client over: when this returns the lease is in Kafka.

        From its cursor on nothing is missed. Raises Standby, Elsewhere, KeyUsedBefore,
        TooManyLeases, EndpointRefused, CursorError, FilterError, TooManyFilters, LookupError,
        ValueError (the secret) or Unavailable.
        """
        lease_id = (
            self._own_id() if idempotency_key is None else lease_requests.id_of_key(idempotency_key)
        )
        granting = self._granting.setdefault(lease_id, _Granting())
        granting.users += 1
        is_anybody = reader.proof.kind is Kind.ANONYMOUS
        client = self._sealer.client_of(address if is_anybody else f"reader {reader.name}")
        self._granting_to[client] += 1
        try:
            async with granting.lock:
                return await self._grant(lease_id, request, client, reader)
        finally:
            self._granting_to[client] -= 1
            if not self._granting_to[client]:
                del self._granting_to[client]
            granting.users -= 1
            if not granting.users:
                del self._granting[lease_id]

    async def _grant(
        self, lease_id: str, request: LeaseRequest, client: str, reader: Principal
    ) -> Granted:
        writer = self._writer_of(lease_id)
        managed = self._leases.leases.get(lease_id)
        if managed is not None:
            if managed.lease.request_hash != lease_requests.hash_of(request, reader):
                raise KeyUsedBefore("this Idempotency-Key came with another request before")
            return Granted(
                managed.lease, self._sealer.open(lease_id, managed.lease.sealed), is_new=False
            )
        # This one is not granted yet.
        held = self._leases.clients[client] + self._granting_to[client] - 1
        refused = self._bound.refusal(
            total=len(self._leases.leases) + len(self._granting) - 1, held=held
        )
        if refused is not None:
            raise TooManyLeases(refused)
        refused = reader.limits.refusal("leases_max", held)
        if refused is not None:
            raise TooManyLeases(refused)
        host = await self._host_of(request.endpoint)
        chosen = await self._choice(request.subscription, reader)
        await self._watch.check(chosen.counted, request.cursor, client, chosen.checked_as)
        lease, endpoint = lease_requests.new_lease(
            lease_id,
            request,
            reader,
            chosen,
            host=host,
            client=client,
            sealer=self._sealer,
            random_bytes=self._random_bytes,
            now=self._clock.now_ms(),
        )
        await self._store_new(writer, lease)
        self._leases.manage(ManagedLease(lease))
        self._metrics.granted.inc()
        return Granted(lease, endpoint, is_new=True)

    async def _choice(self, asked: Chosen, reader: Principal) -> LeaseChoice:
        """What a reader may have counted; `Watch.check` looks at its streams.

        Raises RequestError, UnknownPublication, FilterError, LookupError or Unavailable.
        """
        words = wanted(checked(asked).subscription)
        if asked.publication is None:
            streams, who = words.streams, reader
            found = Subscription(streams=streams, where=words.where, select=words.select)
            lease_rights.check_fields(reader, found, words.per)
            of_right = lease_rights.condition_of(reader, streams)
            right = lease_rights.right_of(reader, streams, where=words.where)
        else:
            publication = await self._watch.published(asked.publication, reader)
            streams, who = tuple(sorted(set(publication.streams))), ANYBODY
            found = Subscription(streams=streams, where=words.where, select=words.select)
            lease_rights.check_shown_fields(reader, found, publication, words.per)
            await self._watch.check_sets(found, reader)
            of_right = lease_rights.condition_of_publication(reader, publication)
            right = lease_rights.right_of(
                reader, streams, where=words.where, publication=publication.name, of=publication
            )
        things: Mapping[str, Sequence[str]] = dict.fromkeys(streams, words.per)
        if words.sample is not None and not words.per:
            things = await self._watch.things(streams, who)
        devices = names_of(words.devices)
        condition = lease_choice.condition_of(of_right, devices, words.sample, things)
        return LeaseChoice(found, condition, right, who, devices, words.sample, words.per)

    def _own_id(self) -> str:
        """An id in a partition of this proxy."""
        if not any(partition.is_restored for partition in self._leases.partitions.values()):
            raise Standby("this proxy has no leases yet")
        while True:
            lease_id = lease_requests.new_id(self._random_bytes)
            found = self._leases.partitions.get(lease_record.partition_of(lease_id))
            if found is not None and found.is_restored:
                return lease_id

    async def _store_new(self, writer: Writer, lease: Lease) -> None:
        try:
            await writer.put(lease)
        except Unavailable:
            # The change may yet be committed, and the client, who is answered no, would be woken
            # for nothing.
            await asyncio.gather(writer.remove(lease.id), return_exceptions=True)
            raise
        except NotOwner as error:
            raise Standby("the leases went to another proxy; ask again") from error
        if self._writer_of(lease.id) is not writer:
            raise Standby("the leases went to another proxy; ask again")

    def get(self, lease_id: str, token: str) -> Lease:
        """A lease, for who has its token. Raises Standby, Elsewhere or NoSuchLease."""
        managed = self._authorized(lease_id, hash_token(token))
        self._leases.ended_right(managed)
        return managed.lease

    def unseen(self, lease_id: str) -> Unseen:
        """What a lease has not seen, as far as is counted."""
        managed = self._leases.leases.get(lease_id)
        return Unseen() if managed is None or managed.counter is None else managed.counter.unseen

    async def relayed(
        self, lease_id: str, token: str, *, after: int, wait_s: float
    ) -> Relayed | None:
        """The wake-up of a relay that waits for its client, with a number above `after`.

        None where there is none within `wait_s`. Raises as `get` does, NotAsked, Disabled and
        TooManyWaiting.
        """
        until = self._clock.monotonic_s() + wait_s
        while True:
            left_s = until - self._clock.monotonic_s()
            managed = self._authorized(lease_id, hash_token(token), waits_s=max(0.0, left_s))
            why = self._leases.ended_right(managed)
            lease = managed.lease
            if not lease.is_relay:
                raise NotAsked("the endpoint of this lease is called; expected one of type relay")
            if why is not None:
                raise Disabled(f"this lease wakes nobody any more: its right is {why}")
            if lease.disabled is not None:
                raise Disabled(f"this lease wakes nobody any more: {lease.disabled}")
            if lease.relayed is not None and lease.relayed.number > after:
                return self._signed(lease, lease.relayed)
            over_at = lease_rights.over_at(lease)
            waits_s = left_s
            if over_at is not None:  # then it is looked at again, and its client told
                waits_s = min(left_s, max(0.0, (over_at - self._clock.now_ms()) / 1000))
            if left_s <= 0 or not await self._leases.relay.wait(lease, waits_s):
                return None

    def _signed(self, lease: Lease, wake: PendingWake) -> Relayed:
        now = self._clock.now_ms()
        endpoint = self._sealer.open(lease.id, lease.sealed)
        secrets = endpoint.signing(lease.old_secret_until, now=now)
        id_ = webhook.wake_id(lease.id, wake.number)
        return Relayed(webhook.signed_headers(secrets, id_, wake.body, at_ms=now), wake.body)

    async def _host_of(self, endpoint: LeaseEndpoint) -> str:
        """The host that is called, if it may be. Raises EndpointRefused and Unavailable."""
        if not isinstance(endpoint, Webhook):
            return RELAY_HOST
        return await self._caller.check(str(endpoint.url))

    async def change(self, lease_id: str, token: str, change: LeaseChange) -> Lease:
        """Change and renew a lease. Raises as `grant` does, and NoSuchLease."""
        managed = self._authorized(lease_id, hash_token(token))
        self._leases.ended_right(managed)
        asked_at = self._clock.now_ms()
        before = self._sealer.open(lease_id, managed.lease.sealed)
        endpoint, host = (
            lease_requests.changed_endpoint(change, before),
            managed.lease.endpoint_host,
        )
        if change.endpoint is not None:
            host = await self._host_of(change.endpoint)
        if change.cursor is not None:
            counted = _counted(managed.lease.subscription, managed.lease.condition)
            await self._watch.check(counted, change.cursor, managed.lease.client, ANYBODY)
        managed = self._authorized(lease_id, hash_token(token))  # it may have ended meanwhile
        old = managed.lease
        new = lease_requests.changed(
            old,
            change,
            before=before,
            endpoint=endpoint,
            host=host,
            sealer=self._sealer,
            now=self._clock.now_ms(),
        )
        managed.lease = new
        try:
            await self._writer_of(lease_id).put(new)
        except (Unavailable, NotOwner) as error:
            if managed.lease is new:
                managed.lease = old
            raise (
                Standby("the leases went to another proxy; ask again")
                if isinstance(error, NotOwner)
                else error
            ) from error
        if change.cursor is not None:
            managed.slept_at = asked_at
        if change.cursor is not None or change.wake is not None or old.state is LeaseState.DISABLED:
            self._leases.count_anew(managed)
        self._leases.look_at(lease_id)
        return managed.lease

    async def end(self, lease_id: str, token: str) -> None:
        """End a lease: when this returns no further wake-up is started.

        Raises Standby, Elsewhere, NoSuchLease or Unavailable.
        """
        await self._end(self._authorized(lease_id, hash_token(token)))

    async def expel(self, lease_id: str) -> bool:
        """End a lease for an operator; False where it is not one of this proxy's.

        Raises Standby or Unavailable.
        """
        managed = self._leases.leases.get(lease_id)
        if managed is None:
            return False
        await self._end(managed)
        return True

    def wake_now(self, lease_id: str) -> bool:
        """Wake a client for an operator; False where there is none here that can be woken."""
        managed = self._leases.leases.get(lease_id)
        return managed is not None and self._leases.wake_now(managed)

    async def _end(self, managed: ManagedLease) -> None:
        lease_id = managed.lease.id
        writer = self._writer_of(lease_id)
        self._leases.drop(managed)
        if managed.call is not None:
            await asyncio.gather(managed.call, return_exceptions=True)
        try:
            await writer.remove(lease_id)
        except Unavailable:
            if lease_record.partition_of(lease_id) in self._leases.partitions:
                back = lease_state.taken_over(managed.lease, now=self._clock.now_ms())
                self._leases.manage(ManagedLease(back))  # not ended: the client will ask again
            raise
        except NotOwner as error:
            raise Standby("the leases went to another proxy; ask again") from error

    def client_reads(self, lease_id: str, read: LeaseRead) -> None:
        """An access server says that a client reads: wake it no more while it does."""
        managed, now = self._leases.leases.get(lease_id), self._clock.now_ms()
        if managed is None or not hmac.compare_digest(read.token_hash, managed.lease.token_hash):
            return
        if lease_state.is_old_news(read.at, slept_at=managed.slept_at, now=now):
            return
        was = managed.lease
        # A cursor of other streams than the lease's says nothing about what the lease has seen.
        cursor = read.cursor if read.streams == was.streams else None
        managed.lease = lease_state.reads(was, cursor=cursor, now=now)
        self._leases.look_at(lease_id)
        if was.state is not managed.lease.state or managed.lease.cursor != was.cursor:
            self._leases.stop_counting(managed)
            self._leases.spawn(self._leases.store(managed), f"reads-{lease_id}")

    def _writer_of(self, lease_id: str, waits_s: float = 0) -> Writer:
        partition = self._leases.partitions.get(lease_record.partition_of(lease_id))
        if partition is None:
            raise Elsewhere(lease_record.partition_of(lease_id), waits_s)
        if not partition.is_restored:
            raise Standby("this proxy is taking these leases over")
        return partition.writer

    def _authorized(self, lease_id: str, token_hash: str, *, waits_s: float = 0) -> ManagedLease:
        self._writer_of(lease_id, waits_s)
        managed = self._leases.leases.get(lease_id)
        # A wrong id and a wrong token take equal work and get the same answer.
        if (
            not hmac.compare_digest(token_hash, managed.lease.token_hash if managed else "0" * 64)
            or managed is None
        ):
            raise NoSuchLease("no such lease, or not with this token")
        return managed


def _counted(subscription: Subscription, condition: str | None) -> Subscription:
    """With what the right adds to its filter."""
    where = lease_rights.counted(subscription.where, condition)
    return subscription.model_copy(update={"where": where})
