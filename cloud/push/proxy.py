"""The proxy: one task tends each lease, from the place that it was told to until its end.

The order that loses nothing, at every wake-up:

1. read on from the place that the client was told of, count;
2. fix the wake-up (number, body, place) and keep it in Kafka;
3. call the endpoint, again and again if need be, always with the same id and body;
4. only when it was taken move the place, in Kafka; then go on at 1.

A proxy that dies between any two is followed by one that reads the lease and repeats the step. So a wake-up may come twice, with the same
webhook-id, and none is lost. The client's own cursor is never changed by the proxy.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Protocol

from edgewake.cloud.push import wake_policy, webhook
from edgewake.cloud.push.leases import NotOwner
from edgewake.cloud.push.metrics import Metrics
from edgewake.cloud.push.wake_policy import Unseen
from edgewake.cloud.push.watch import Seen, Watch, Watched
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import CursorError, EdgewakeError, FilterError, Unavailable
from edgewake.protocol.lease import Lease, LeaseRequest, PendingWake

log = logging.getLogger("edgewake.push")

RETRY_KAFKA_S: Final = 1.0
"""Between attempts to keep a lease or to read on while Kafka is away."""
CATCH_UP_S: Final = 5.0
"""How long a step of reading what is there already may take before the wake-up goes out with what was counted."""
WAIT_MAX_S: Final = 3600.0
"""No wait is longer, so that a wall clock that was set forward is noticed within an hour."""


class Store(Protocol):
    """Where leases are kept: `edgewake.cloud.push.leases.LeaseWriter`."""

    async def put(self, lease: Lease) -> None:
        """Keep a lease; returns when it is durable. Raises Unavailable or NotOwner."""

    async def remove(self, lease_id: str) -> None:
        """Forget a lease. Raises Unavailable or NotOwner."""

    async def run(self) -> None:
        """Work until cancelled. Raises NotOwner."""


class Standby(EdgewakeError):
    """Another proxy has the leases."""


class TooManyLeases(EdgewakeError):
    """The bound on leases is reached."""


class NoSuchLease(EdgewakeError):
    """No lease of this id, or not with this token."""


@dataclass(frozen=True, slots=True)
class Granted:
    """A new lease, with what is said only once."""

    lease: Lease
    token: str
    secret_made: bool


@dataclass(slots=True)
class _Tended:
    lease: Lease
    watched: Watched | None
    task: asyncio.Task[None] | None = None

    def close_watch(self) -> None:
        """Read no further; the next read opens anew."""
        if self.watched is not None:
            self.watched.close()
            self.watched = None


@dataclass(slots=True)
class _Found:
    """What was read since the place that the client was told of."""

    cursor: str
    waiting: Unseen = field(default_factory=Unseen)
    previews: list[Mapping[str, Any]] = field(default_factory=list)
    more: bool = True
    """There may be more to be read at once."""

    def add(self, seen: Seen, now: int) -> None:
        """Count what was seen."""
        oldest = self.waiting.oldest_at
        if oldest is None and seen.count:
            oldest = now if seen.first_at is None else min(now, seen.first_at)
        count, gap = self.waiting.count + seen.count, self.waiting.gap or seen.gap
        self.waiting = Unseen(count, oldest, gap)
        self.previews += seen.previews
        self.cursor = seen.cursor
        self.more = seen.more


class Proxy:
    """All leases of this process. Every method runs on the event loop."""

    def __init__(
        self,
        watch: Watch,
        caller: webhook.Caller,
        clock: Clock,
        *,
        rng: random.Random,
        random_bytes: Callable[[int], bytes],
        leases_max: int,
        metrics: Metrics,
    ) -> None:
        self._watch = watch
        self._caller = caller
        self._clock = clock
        self._rng = rng
        self._random_bytes = random_bytes
        self._leases_max = leases_max
        self._metrics = metrics
        self._writer: Store | None = None
        self._writing: asyncio.Task[None] | None = None
        self._tended: dict[str, _Tended] = {}
        self._granting = 0
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # Ownership

    @property
    def active(self) -> bool:
        """Does this proxy have the leases?"""
        return self._writer is not None

    def owned(self, leases: Mapping[str, Lease], writer: Store) -> None:
        """Go on with these leases."""
        log.info("took over %d leases", len(leases), extra={"event": "push.owned", "leases": len(leases)})
        self._writer = writer
        self._writing = asyncio.create_task(self._write(writer), name="lease-writer")
        for lease in leases.values():
            self._tend(_Tended(lease, None))
        self._metrics.active.set(1)

    def lost(self) -> None:
        """The leases are another's: stop tending."""
        if self.active:
            log.warning("the leases are another proxy's now", extra={"event": "push.lost"})
            self._stop()

    def _stop(self) -> list[asyncio.Task[None]]:
        tasks = [task for task in [self._writing, *(tended.task for tended in self._tended.values())] if task is not None]
        for task in tasks:
            task.cancel()
        self._writer = self._writing = None
        self._tended.clear()
        self._metrics.active.set(0)
        self._metrics.leases.set(0)
        return tasks

    async def _write(self, writer: Store) -> None:
        try:
            await writer.run()
        except NotOwner as error:
            # Fenced while still a member: two ideas of who owns the table. The restart settles it.
            self._fail(error)

    async def watch_over(self) -> None:
        """Ends only by raising what killed a task."""
        await asyncio.shield(self._failed)

    def _fail(self, error: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

    async def close(self) -> None:
        """Stop tending; the leases stay in Kafka."""
        await asyncio.gather(*self._stop(), return_exceptions=True)

    # What clients ask for

    async def grant(self, request: LeaseRequest) -> Granted:
        """Take a client over: when this returns, the lease is in Kafka and the watch stands at its cursor.

        Raises Standby, TooManyLeases, EndpointRefused, CursorError, FilterError, LookupError, ValueError (the secret) or Unavailable.
        """
        writer = self._owner()
        if len(self._tended) + self._granting >= self._leases_max:
            raise TooManyLeases(f"{self._leases_max} leases, no more")
        self._granting += 1
        try:
            lease, token = self._new_lease(request)
            await self._caller.check(str(request.endpoint.url))
            watched = await self._watch.open(request.subscription, request.cursor)
            try:
                await self._keep_new(writer, lease)
            except BaseException:
                watched.close()
                raise
            self._tend(_Tended(lease, watched))
        finally:
            self._granting -= 1
        self._metrics.granted.inc()
        return Granted(lease, token, request.endpoint.secret is None)

    def _new_lease(self, request: LeaseRequest) -> tuple[Lease, str]:
        secret = request.endpoint.secret
        if secret is None:
            secret = webhook.make_secret(self._random_bytes)
        else:
            webhook.check_secret(secret)
        token = self._random_bytes(24).hex()
        now = self._clock.now_ms()
        kept = request.model_copy(update={"endpoint": request.endpoint.model_copy(update={"secret": None})})
        return Lease(
            id=self._random_bytes(12).hex(),
            token_hash=_hash(token),
            request=kept,
            secret=secret,
            created_at=now,
            expires_at=now + request.ttl_s * 1000,
        ), token

    async def _keep_new(self, writer: Store, lease: Lease) -> None:
        try:
            await writer.put(lease)
        except Unavailable:
            # The change may yet be committed, and the client, who is told no, would be woken for nothing.
            await asyncio.gather(writer.remove(lease.id), return_exceptions=True)
            raise
        except NotOwner as error:
            raise Standby("the leases went to another proxy; ask it") from error
        if self._writer is not writer:
            raise Standby("the leases went to another proxy; ask it")

    def get(self, lease_id: str, token: str) -> Lease:
        """A lease, for who holds its token. Raises Standby or NoSuchLease."""
        self._owner()
        return self._held(lease_id, token).lease

    async def end(self, lease_id: str, token: str) -> None:
        """End a lease: when this returns no further wake-up is started. Raises Standby, NoSuchLease or Unavailable."""
        writer = self._owner()
        tended = self._held(lease_id, token)
        await self._stop_tending(tended)
        try:
            await writer.remove(lease_id)
        except Unavailable:
            self._tend(tended)  # not ended: the client will ask again
            raise
        except NotOwner as error:
            raise Standby("the leases went to another proxy; ask it") from error

    async def _stop_tending(self, tended: _Tended) -> None:
        self._tended.pop(tended.lease.id, None)
        self._metrics.leases.set(len(self._tended))
        if tended.task is not None:
            tended.task.cancel()
            await asyncio.gather(tended.task, return_exceptions=True)

    def _owner(self) -> Store:
        if self._writer is None:
            raise Standby("this proxy stands by or is starting; another one has the leases")
        return self._writer

    def _held(self, lease_id: str, token: str) -> _Tended:
        tended = self._tended.get(lease_id)
        # The same work and the same answer whether the id or the token is wrong.
        if not hmac.compare_digest(_hash(token), tended.lease.token_hash if tended else "") or tended is None:
            raise NoSuchLease("no such lease, or not with this token")
        return tended

    # Tending

    def _tend(self, tended: _Tended) -> None:
        self._tended[tended.lease.id] = tended
        self._metrics.leases.set(len(self._tended))
        tended.task = asyncio.create_task(self._guarded(tended), name=f"lease-{tended.lease.id}")
        # Not a `finally` of the task: one that is cancelled before its first step runs none.
        tended.task.add_done_callback(lambda _: tended.close_watch())

    async def _guarded(self, tended: _Tended) -> None:
        try:
            await self._live(tended)
        except NotOwner:
            pass  # the writer's own end says it
        except Exception as error:
            log.critical("lease %s: %r", tended.lease.id, error, extra={"event": "push.task_died"}, exc_info=error)
            self._fail(error)

    async def _live(self, tended: _Tended) -> None:
        remaining = (tended.lease.expires_at - self._clock.now_ms()) / 1000
        try:
            async with asyncio.timeout(max(0.0, remaining)) as life:
                await self._serve(tended)
        except TimeoutError:
            if not life.expired():
                raise
            await self._keep(tended, None)
            self._tended.pop(tended.lease.id, None)
            self._metrics.leases.set(len(self._tended))
            self._metrics.expired.inc()
            log.info("lease %s expired", tended.lease.id, extra={"event": "push.expired", "wakes": tended.lease.wakes})

    async def _serve(self, tended: _Tended) -> None:
        """Wake the client until the endpoint is given up; then wait for the lease's end."""
        while tended.lease.disabled is None:
            if tended.lease.pending is None:
                await self._fix_next(tended)
            else:
                await self._try(tended)
        tended.close_watch()
        await asyncio.Event().wait()

    async def _fix_next(self, tended: _Tended) -> None:
        """Read on until a wake-up is due, then fix it: durable before its first attempt."""
        lease = tended.lease
        found = _Found(lease.woken_to or lease.request.cursor)
        while not await self._found_enough(tended, found):
            pass
        if tended.watched is None:
            return
        if found.waiting.capped:
            found.cursor = tended.watched.skip_to_end()  # the wake-up says that there is more, so it covers all there is
        await self._keep(tended, lease.model_copy(update={"pending": self._wake(lease, found)}))

    async def _found_enough(self, tended: _Tended, found: _Found) -> bool:
        """Read one step on; is a wake-up due now, or can none ever be?"""
        lease, now = tended.lease, self._clock.now_ms()
        wake = lease.request.wake
        due = wake_policy.wake_due_at(wake, found.waiting, last_wake_at=lease.last_wake_at, now=now)
        catching_up = found.more and not found.waiting.capped
        if due is not None and due <= now and not catching_up:
            return True
        timeout_s = CATCH_UP_S if catching_up else WAIT_MAX_S if due is None else min(WAIT_MAX_S, (due - now) / 1000)
        if found.waiting.capped:
            await self._clock.sleep(timeout_s)
            return False
        watched = await self._watched(tended, found.cursor)
        if watched is None:
            return True
        seen = await self._read(tended, watched, timeout_s, wake.preview_events - len(found.previews))
        if seen is None:
            found.more = False
        else:
            found.add(seen, self._clock.now_ms())
        return False

    async def _watched(self, tended: _Tended, cursor: str) -> Watched | None:
        """The watch, opened at `cursor` where there is none; None where the place cannot be resumed any more, which ends the calls."""
        while tended.watched is None:
            lease = tended.lease
            try:
                tended.watched = await self._watch.open(lease.request.subscription, cursor)
            except Unavailable as error:
                log.warning("lease %s: %s", lease.id, error, extra={"event": "push.watch_away"})
                await self._clock.sleep(RETRY_KAFKA_S)
            except (CursorError, FilterError, LookupError) as error:
                await self._disable(tended, f"the subscription cannot be resumed: {error}")
                return None
        return tended.watched

    async def _read(self, tended: _Tended, watched: Watched, timeout_s: float, previews_max: int) -> Seen | None:
        try:
            async with asyncio.timeout(timeout_s):
                return await watched.next(previews_max=previews_max)
        except TimeoutError:
            return None
        except Unavailable as error:
            log.info("lease %s: %s; opening it anew", tended.lease.id, error, extra={"event": "push.watch_reopened"})
            tended.close_watch()
            await self._clock.sleep(RETRY_KAFKA_S)
            return None

    def _wake(self, lease: Lease, found: _Found) -> PendingWake:
        waiting = found.waiting
        capped = lease.waiting_capped or waiting.capped
        count = lease.waiting + waiting.count
        now = self._clock.now_ms()
        facts = {
            "lease": lease.id,
            "cursor": lease.request.cursor,
            "count": count,
            "capped": capped,
            "gap": waiting.gap,
            "streams": list(lease.request.subscription.streams),
        }
        body = webhook.wake_body(facts, found.previews, at_ms=now)
        return PendingWake(number=lease.wakes + 1, body=body, to=found.cursor, count=count, capped=capped, made_at=now)

    async def _try(self, tended: _Tended) -> None:
        lease = tended.lease
        pending = lease.pending
        assert pending is not None
        while (wait_s := ((lease.retry_at or 0) - self._clock.now_ms()) / 1000) > 0:
            await self._clock.sleep(min(wait_s, WAIT_MAX_S))
        signed = webhook.Signed(lease.secret, f"msg_{lease.id}_{pending.number}", pending.body)
        outcome = await self._caller.call(str(lease.request.endpoint.url), signed)
        self._metrics.calls.labels(type(outcome).__name__.lower()).inc()
        match outcome:
            case webhook.Taken():
                await self._keep(tended, _taken(lease, pending, self._clock.now_ms()))
                self._metrics.wakes.inc()
            case webhook.Gone(why):
                await self._disable(tended, why)
            case webhook.Failed(why, retry_after_s):
                await self._failed_try(tended, why, retry_after_s)

    async def _failed_try(self, tended: _Tended, why: str, retry_after_s: float | None) -> None:
        failures, now = tended.lease.failures + 1, self._clock.now_ms()
        since = min(now, tended.lease.failing_since or now)
        delay_s = wake_policy.retry_delay_s(failures, failing_since=since, now=now, retry_after_s=retry_after_s, rng=self._rng)
        if delay_s is None:
            return await self._disable(tended, f"given up after {failures} tries; the last: {why}")
        log.info(
            "lease %s: %s; next try in %.0f s", tended.lease.id, why, delay_s, extra={"event": "push.call_failed", "failures": failures}
        )
        changes = {"failures": failures, "failing_since": since, "retry_at": now + round(delay_s * 1000)}
        await self._keep(tended, tended.lease.model_copy(update=changes))
        return None

    async def _disable(self, tended: _Tended, why: str) -> None:
        log.warning("lease %s: not tried any more: %s", tended.lease.id, why, extra={"event": "push.disabled"})
        self._metrics.disabled.inc()
        await self._keep(tended, tended.lease.model_copy(update={"disabled": why, "failures": tended.lease.failures + 1}))

    async def _keep(self, tended: _Tended, lease: Lease | None) -> None:
        """Keep the lease as it is now (None: forget it), however long Kafka is away."""
        while True:
            writer = self._writer
            if writer is None:
                raise NotOwner("the leases are another's")
            try:
                if lease is None:
                    return await writer.remove(tended.lease.id)
                await writer.put(lease)
            except Unavailable as error:
                log.warning("%s", error, extra={"event": "push.keep_failed"})
                await self._clock.sleep(RETRY_KAFKA_S)
            else:
                tended.lease = lease
                return None


def _taken(lease: Lease, pending: PendingWake, now: int) -> Lease:
    return lease.model_copy(
        update={
            "pending": None,
            "retry_at": None,
            "failures": 0,
            "failing_since": None,
            "wakes": pending.number,
            "last_wake_at": now,
            "woken_to": pending.to,
            "waiting": pending.count,
            "waiting_capped": pending.capped,
        }
    )


def _hash(token: str) -> str:
    return sha256(token.encode()).hexdigest()
