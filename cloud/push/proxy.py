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
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final

from cloud.push import wake_policy, webhook
from cloud.push.leases import LeaseWriter, NotOwner
from cloud.push.metrics import Metrics
from cloud.push.wake_policy import Waiting
from cloud.push.watch import Seen, Watch, Watched
from protocol.clock import Clock
from protocol.errors import CursorError, EdgewakeError, FilterError, Unavailable
from protocol.lease import Lease, LeaseRequest, PendingWake

log = logging.getLogger("edgewake.push")

RETRY_KAFKA_S: Final = 1.0
"""Between attempts to keep a lease or to read on while Kafka is away."""
WAIT_MAX_S: Final = 3600.0
"""No wait is longer, so that a wall clock that was set forward is noticed within an hour."""


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
        self._writer: LeaseWriter | None = None
        self._writing: asyncio.Task[None] | None = None
        self._tended: dict[str, _Tended] = {}
        self._granting = 0
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # Ownership

    @property
    def active(self) -> bool:
        """Does this proxy have the leases?"""
        return self._writer is not None

    def owned(self, leases: Mapping[str, Lease], writer: LeaseWriter) -> None:
        """Go on with these leases."""
        log.info("took over %d leases", len(leases), extra={"event": "push.owned", "leases": len(leases)})
        self._writer = writer
        self._writing = asyncio.create_task(self._write(writer), name="lease-writer")
        for lease in leases.values():
            self._tend(_Tended(lease, None))
        self._metrics.active.set(1)

    def lost(self) -> None:
        """Stop: the leases are another's."""
        if self._writer is None:
            return
        log.warning("another proxy takes over the leases", extra={"event": "push.lost"})
        self._writer = None
        self._metrics.active.set(0)
        self._metrics.leases.set(0)
        for task in [self._writing, *(tended.task for tended in self._tended.values())]:
            if task is not None:
                task.cancel()
        self._tended.clear()

    async def _write(self, writer: LeaseWriter) -> None:
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
        tasks = [task for task in [self._writing, *(tended.task for tended in self._tended.values())] if task is not None]
        self.lost()
        await asyncio.gather(*tasks, return_exceptions=True)

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
            await self._keep_new(writer, lease)
            if self._writer is not writer:
                raise Standby("the leases went to another proxy; ask it")
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

    async def _keep_new(self, writer: LeaseWriter, lease: Lease) -> None:
        try:
            await writer.put(lease)
        except Unavailable:
            # The change may yet be committed, and the client, who is told no, would be woken for nothing.
            await asyncio.gather(writer.remove(lease.id), return_exceptions=True)
            raise
        except NotOwner as error:
            raise Standby("the leases went to another proxy; ask it") from error

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

    def _owner(self) -> LeaseWriter:
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
        tended.watched = None
        await asyncio.Event().wait()

    async def _fix_next(self, tended: _Tended) -> None:
        watched = await self._watched(tended)
        if watched is None:
            return
        lease = tended.lease
        waiting, previews, cursor = Waiting(), list[Mapping[str, Any]](), lease.woken_to or lease.request.cursor
        wake = lease.request.wake
        while True:
            now = self._clock.now_ms()
            due = wake_policy.wake_due_at(wake, waiting, last_wake_at=lease.last_wake_at, now=now)
            if due is not None and due <= now:
                break
            timeout_s = WAIT_MAX_S if due is None else min(WAIT_MAX_S, (due - now) / 1000)
            room = wake_policy.COUNT_MAX - waiting.count
            seen = await self._read(watched, timeout_s, room, wake.preview_events - len(previews))
            if seen is None:
                continue
            waiting = _added(waiting, seen, self._clock.now_ms())
            previews += seen.previews
            cursor = seen.cursor
        if waiting.capped:
            cursor = watched.skip_to_end()  # the wake-up says that there is more, so it covers all there is
        await self._keep(tended, lease.model_copy(update={"pending": self._wake(lease, waiting, previews, cursor)}))

    async def _watched(self, tended: _Tended) -> Watched | None:
        """The watch at the place that the client was told of; a place that cannot be resumed any more ends the lease's wake-ups."""
        while tended.watched is None:
            lease = tended.lease
            try:
                tended.watched = await self._watch.open(lease.request.subscription, lease.woken_to or lease.request.cursor)
            except Unavailable as error:
                log.warning("lease %s: %s", lease.id, error, extra={"event": "push.watch_away"})
                await self._clock.sleep(RETRY_KAFKA_S)
            except (CursorError, FilterError, LookupError) as error:
                await self._disable(tended, f"the subscription cannot be resumed: {error}")
                return None
        return tended.watched

    async def _read(self, watched: Watched, timeout_s: float, events_max: int, previews_max: int) -> Seen | None:
        if events_max <= 0:  # counting has stopped; wait for the wake-up to be due
            await self._clock.sleep(timeout_s)
            return None
        try:
            async with asyncio.timeout(timeout_s):
                return await watched.next(events_max=events_max, previews_max=previews_max)
        except TimeoutError:
            return None
        except Unavailable:
            await self._clock.sleep(RETRY_KAFKA_S)
            return None

    def _wake(self, lease: Lease, waiting: Waiting, previews: list[Mapping[str, Any]], cursor: str) -> PendingWake:
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
        body = webhook.wake_body(facts, previews, at_ms=now)
        return PendingWake(number=lease.wakes + 1, body=body, to=cursor, count=count, capped=capped, made_at=now)

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
        failures = tended.lease.failures + 1
        delay_s = wake_policy.retry_delay_s(failures, retry_after_s=retry_after_s, rng=self._rng)
        if delay_s is None:
            return await self._disable(tended, f"given up after {failures} tries; the last: {why}")
        log.info(
            "lease %s: %s; next try in %.0f s", tended.lease.id, why, delay_s, extra={"event": "push.call_failed", "failures": failures}
        )
        retry_at = self._clock.now_ms() + round(delay_s * 1000)
        await self._keep(tended, tended.lease.model_copy(update={"failures": failures, "retry_at": retry_at}))
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


def _added(waiting: Waiting, seen: Seen, now: int) -> Waiting:
    oldest = waiting.oldest_at
    if oldest is None and seen.count:
        oldest = now if seen.first_at is None else min(now, seen.first_at)
    return replace(waiting, count=waiting.count + seen.count, oldest_at=oldest, gap=waiting.gap or seen.gap)


def _taken(lease: Lease, pending: PendingWake, now: int) -> Lease:
    return lease.model_copy(
        update={
            "pending": None,
            "retry_at": None,
            "failures": 0,
            "wakes": pending.number,
            "last_wake_at": now,
            "woken_to": pending.to,
            "waiting": pending.count,
            "waiting_capped": pending.capped,
        }
    )


def _hash(token: str) -> str:
    return sha256(token.encode()).hexdigest()
