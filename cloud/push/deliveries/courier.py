"""Carries out one delivery: reads a batch, stores it as pending, calls the endpoint, goes on.

1. The batch (number, up to where) is stored in Kafka, in a transaction that only the owner of the
partition can commit; 2. the endpoint is called, again and again if need be, with the same id and
the same events; 3. the cursor behind it is stored, with the next batch where there is one already.

A server that dies between any two is followed by one that reads the row, makes the batch once more
and repeats step 2: so a batch may come twice, with the same webhook-id, and none is lost or out of
order. The id names what the batch holds: where a named set has changed meanwhile, and other events
are made of the same range, they come with another id, and nobody drops what it never had. One call
is under way at a time, and each delivery has a courier of its own, so an endpoint that hangs keeps
no other waiting.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final, Protocol

import orjson

from edgewake.cloud import failpoint
from edgewake.cloud.calls import sealing, webhook
from edgewake.cloud.log.catalogue import UnknownStream
from edgewake.cloud.log.following.subscriber import ViewEnded
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.request import OnGap, Request, RequestError
from edgewake.cloud.log.subscription import Plan, Positions
from edgewake.cloud.push.chosen import check_whole, kept, rate_of
from edgewake.cloud.push.deliveries import delivery_state
from edgewake.cloud.push.deliveries.reading import Batch, Reading
from edgewake.cloud.push.guarded_tasks import Spawn
from edgewake.cloud.push.leases import lease_rights
from edgewake.cloud.push.metrics import Metrics
from edgewake.cloud.rights.principal import Action
from edgewake.cloud.rights.rights import Rights
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import CursorError, FilterError, Unavailable
from edgewake.protocol.leases.delivery_record import Delivery, DeliveryState, Letter, encode

log = logging.getLogger("edgewake.deliveries")

TYPE: Final = "edgewake.events"
DIGEST_BYTES: Final = 8
"""What a webhook-id says of a batch's events: of two that differ 1 in 10^19 have the same."""
AGAIN_S: Final = 1.0
"""Between attempts to read while Kafka, or a stream, is away."""
KEEP_S: Final = 10.0
"""Seconds after which progress without events is stored."""
RIGHT_S: Final = 1.0
"""How often it is looked whether the owner's right holds, while it waits to try again."""
WRONG: Final = (CursorError, FilterError, RequestError, sealing.Damaged)
"""Errors that no retry cures."""


class Writer(Protocol):
    """Stores rows, and thereby proves that they are ours."""

    proved_at: float
    """When, on the monotonic clock, the last transaction began that was committed."""

    async def put_row(self, key: str, value: bytes | None) -> None:
        """Raises Unavailable or NotOwner."""


@dataclass(frozen=True, slots=True)
class Services:
    """The services that couriers use."""

    hub: Hub
    caller: webhook.Caller
    sealer: sealing.Sealer
    rights: Rights
    clock: Clock
    rng: random.Random
    metrics: Metrics
    proof_s: float
    """Before a call the partition was proved to be ours so long ago at most."""


class Courier:
    """Carries out one delivery. `start` it; `stop` it, or `abandon` it to another server."""

    def __init__(self, delivery: Delivery, writer: Writer, services: Services) -> None:
        self.delivery = delivery
        self.letters: dict[int, Letter] = {}
        self.trouble = ""
        """What keeps it from reading, if something does."""
        self._writer, self._services = writer, services
        self._clock = services.clock
        self._plan: Plan
        """The plan of the streams that it reads."""
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._is_calling = False
        self._is_dirty = False
        """Is there more to store than was stored?"""
        self._kept_s = self._clock.monotonic_s()
        self._rate: float | None = None
        """Events a second at most, as its publication allows now."""
        self._paced_until_s = float("-inf")

    # Its life

    def start(self, run: Spawn) -> None:
        """Deliver, if it is to be delivered."""
        self._is_stopping = False
        if self.delivery.state is DeliveryState.ACTIVE:
            self._task = run(self._run(), f"delivery-{self.delivery.id}")

    async def stop(self) -> None:
        """Deliver no more; a call that is under way is waited for."""
        self._is_stopping = True
        # A call is not cut off: nobody would know whether its endpoint has the batch.
        task, self._task = self._task, None
        if task is None:
            return
        if not self._is_calling:
            task.cancel()
        await asyncio.wait({task})

    def abandon(self) -> None:
        """Deliver no more, at once."""
        self._is_stopping = True
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while not self._is_stopping and self.delivery.state is DeliveryState.ACTIVE:
            try:
                await self._deliver()
                self.trouble = ""
            # What may be there again in a moment: Kafka, a stream, a key that an operator adds.
            except (Unavailable, UnknownStream, ViewEnded, sealing.UnknownKey) as error:
                self.trouble = str(error)
                await self._check_right()
                await self._clock.sleep(AGAIN_S)
            except WRONG as error:
                await self._end(str(error))

    async def _deliver(self) -> None:
        """Deliver until it stops or ends, or reading must start again."""
        await self._check_right()
        if self.delivery.state is not DeliveryState.ACTIVE:
            return
        reading = await self._open()
        try:
            while not self._is_stopping and self.delivery.state is DeliveryState.ACTIVE:
                if self.delivery.pending is not None:  # of before: made once more
                    to = self._positions(self.delivery.pending.to)
                    if to is None or reading.has_lost:  # its events are not what they were
                        self.delivery = self.delivery.but(pending=None)
                        continue
                    batch = await reading.up_to(to)
                    if batch is None:
                        self.delivery = self.delivery.but(pending=None)
                    elif batch.events:
                        await self._send(batch)
                    else:  # what it had is not kept any more
                        now = self._clock.now_ms()
                        self.delivery = delivery_state.taken(self.delivery, 0, now=now)
                    return
                if not await self._deliver_next(reading):
                    return
        finally:
            reading.close()

    async def _open(self) -> Reading:
        hub, delivery = self._services.hub, self.delivery
        wanted = kept(hub, delivery)
        check_whole(wanted.publication, "a delivery")
        self._rate = rate_of(wanted, delivery.max_rate)
        reader = lease_rights.reader_of(delivery.right, delivery.streams, Action.READ)
        plan = await hub.open(wanted, reader, is_kept=True)
        try:
            on_gap = OnGap(delivery.on_gap)
            asked = Request(plan.subscription, delivery.cursor, on_gap=on_gap, goes_on=True)
            start = await hub.start(plan, asked)
            self._plan = plan
            return Reading(hub, plan, start, on_gap, self._clock)
        except BaseException:
            hub.close(plan)
            raise

    async def _deliver_next(self, reading: Reading) -> bool:
        """The next batch, if there is one; False: what was read is of no use any more."""
        await self._keep_pace()
        delivery = self.delivery
        if delivery.state is not DeliveryState.ACTIVE:
            return False
        most = min(delivery.events_max, delivery.events_at_once or delivery.events_max)
        if self._rate is not None:  # those of a second, so that they come as evenly as they can
            most = max(1, min(most, int(self._rate)))
        batch = await reading.next(most, delivery.wait_s)
        to = self._encoded(batch)
        # Between reading and calling: what a reader may not see any more is not sent.
        await self._check_right()
        if self.delivery.state is not DeliveryState.ACTIVE:
            return False
        if not batch.events:
            await self._keep_progress(to)
            return True
        self.delivery = delivery_state.begun(self.delivery, to, now=self._clock.now_ms())
        await self._store()
        if self._rate is not None:
            self._paced_until_s = self._clock.monotonic_s() + len(batch.events) / self._rate
        return await self._send(batch)

    async def _keep_pace(self) -> None:
        """Until the events before have had their time; the right is looked at meanwhile."""
        while (left_s := self._paced_until_s - self._clock.monotonic_s()) > 0:
            await self._clock.sleep(min(left_s, RIGHT_S))
            await self._check_right()
            if self.delivery.state is not DeliveryState.ACTIVE:
                return

    async def _keep_progress(self, to: str) -> None:
        if to != self.delivery.cursor:
            self.delivery = delivery_state.moved(self.delivery, to)
            is_due = self._clock.monotonic_s() - self._kept_s >= KEEP_S
            self._is_dirty = self._is_dirty or is_due
        if self._is_dirty:
            await self._store()

    # Calls

    async def _send(self, batch: Batch) -> bool:
        """Call until the endpoint has it; False: not as it is, or not any more."""
        delivery = self.delivery
        assert delivery.pending is not None
        body = body_of(
            delivery.name,
            batch.events,
            number=delivery.pending.number,
            cursor=delivery.pending.to,
            at=delivery.pending.made_at,
        )
        while not self._is_stopping and self.delivery.state is DeliveryState.ACTIVE:
            await self._until_due()
            if self.delivery.state is not DeliveryState.ACTIVE:
                break
            self._is_calling = True
            try:
                await self._prove()
                # Stopped while Kafka was away: nothing proved that the partition is still ours.
                if self._is_stopping:
                    break
                failpoint.reach("deliveries.begun")
                outcome = await self._call(delivery.pending.number, batch.events, body)
                failpoint.reach("deliveries.called")
                if not await self._take(outcome, batch):
                    continue
            finally:
                self._is_calling = False
            return self.delivery.pending is None and isinstance(outcome, webhook.Taken)
        return False

    async def _take(self, outcome: webhook.Outcome, batch: Batch) -> bool:
        """What the answer means; False: to be tried again."""
        now, count = self._clock.now_ms(), len(batch.events)
        self._services.metrics.delivery_calls.labels(type(outcome).__name__.lower()).inc()
        match outcome:
            case webhook.Taken():
                self.delivery = delivery_state.taken(self.delivery, count, now=now)
                self._services.metrics.delivered.inc(count)
                self._is_dirty = True
            case webhook.Gone(why):
                await self._end(why)
            case webhook.Failed():
                return await self._take_failure(outcome, batch)
        return True

    async def _take_failure(self, outcome: webhook.Failed, batch: Batch) -> bool:
        delivery, now, count = self.delivery, self._clock.now_ms(), len(batch.events)
        if webhook.is_gone(outcome, delivery.kind):
            await self._end(outcome.why)
            return True
        if delivery_state.is_refusal(outcome) and count > 1:
            self.delivery = delivery_state.halved(delivery, count, outcome.why)
            self._is_dirty = True
            return True
        event = bytes(batch.events[0]).decode()
        is_letter = delivery_state.is_letter(delivery, outcome, count)
        if is_letter and delivery_state.has_room(self.letters.values(), event):
            _, letter = delivery_state.set_aside(delivery, event, outcome.why, now=now)
            # The letter first: a death between the two sets the event aside once more.
            # Known before it is stored: who deletes the delivery meanwhile deletes it, too.
            self.letters[letter.number] = letter
            try:
                await self._writer.put_row(letter.key, encode(letter))
            except Unavailable:
                self.letters.pop(letter.number, None)
                raise
            # Decided once more from the delivery as it is now: it may have been sealed with
            # another key, or tested, while the letter was stored.
            self.delivery, _ = delivery_state.set_aside(self.delivery, event, outcome.why, now=now)
            self._services.metrics.letters.inc()
            await self._store()
            return True
        self.delivery = delivery_state.failed(delivery, outcome, now=now, rng=self._services.rng)
        if self.delivery.failures == 1 or self.delivery.state is DeliveryState.ENDED:
            self._report(outcome.why)
        await self._store()
        return self.delivery.state is DeliveryState.ENDED

    async def _call(self, number: int, events: Sequence[bytes], body: str) -> webhook.Outcome:
        target, secrets = self.target()
        id_ = message_id(self.delivery, number, events)
        signed = webhook.Signed(secrets, id_, body, target.headers)
        return await self._services.caller.call(target.url, signed)

    async def tell_tested(self, error: str) -> None:
        """Store how a call without an event went; under the lock of its owner. Raises NotOwner."""
        now = self._clock.now_ms()
        self.delivery = self.delivery.but(tested_at=now, test_error=error)
        await self._store()

    async def seal_anew(self) -> None:
        """Seal with the first key what another one has sealed, so that the other can go."""
        sealer, delivery = self._services.sealer, self.delivery
        if sealer.seals_with(delivery.sealed) or not sealer.knows(delivery.sealed):
            return
        try:
            sealed = sealer.seal(delivery.id, sealer.open(delivery.id, delivery.sealed))
        except sealing.Damaged as error:
            self.trouble = str(error)
            return
        self.delivery = self.delivery.but(sealed=sealed)
        await self._store()

    def target(self) -> tuple[sealing.Endpoint, str]:
        """The endpoint, and the secrets that sign. Raises UnknownKey and Damaged."""
        delivery = self.delivery
        found = self._services.sealer.open(delivery.id, delivery.sealed)
        return found, found.signing(delivery.old_secret_until, now=self._clock.now_ms())

    async def replay(self, letter: Letter) -> webhook.Outcome:
        """Send a letter once more; taken, it is one no longer. Raises Unavailable and NotOwner."""
        event = letter.event.encode()
        body = body_of(
            self.delivery.name,
            [event],
            number=letter.number,
            cursor=letter.cursor,
            at=letter.made_at,
            is_replayed=True,
        )
        outcome = await self._call(letter.number, [event], body)
        if self.letters.get(letter.number) is not letter:
            return outcome  # it was dropped, or replayed, meanwhile
        if isinstance(outcome, webhook.Taken):
            await self.drop(letter)
        else:
            failed = Letter(
                letter.delivery,
                letter.number,
                letter.event,
                letter.cursor,
                outcome.why[: delivery_state.ERROR_CHARS_MAX],
                letter.made_at,
                letter.tries + 1,
            )
            # In memory first: who drops it while it is stored drops what it is by then.
            self.letters[letter.number] = failed
            try:
                await self._writer.put_row(failed.key, encode(failed))
            except Unavailable:
                if self.letters.get(letter.number) is failed:
                    self.letters[letter.number] = letter
                raise
        return outcome

    async def drop(self, letter: Letter) -> None:
        """Keep a letter no longer. Raises Unavailable and NotOwner."""
        # Out of memory first: a replay that fails meanwhile would store it once more.
        self.letters.pop(letter.number, None)
        try:
            await self._writer.put_row(letter.key, None)
        except Unavailable:
            self.letters.setdefault(letter.number, letter)
            raise

    async def _until_due(self) -> None:
        """Until the next attempt's time; the right is looked at meanwhile."""
        while self.delivery.next_at is not None:
            left_s = (self.delivery.next_at - self._clock.now_ms()) / 1000
            if left_s <= 0:
                break
            await self._clock.sleep(min(left_s, RIGHT_S))
            await self._check_right()
            if self.delivery.state is not DeliveryState.ACTIVE:
                return

    async def _check_right(self) -> None:
        """End it where its owner's right holds no longer."""
        delivery = self.delivery
        why = lease_rights.end_of_right(
            delivery.right,
            delivery.streams,
            self._services.rights,
            now=self._clock.now_ms(),
            action=Action.READ,
        )
        if why is not None:
            await self._end(f"its right is {why}")

    async def _end(self, why: str) -> None:
        """It is shown as ended when that is stored: a kill would let it go on unasked.

        Stopped before that it has not ended: whoever starts it again finds out once more.
        """
        while self.delivery.state is not DeliveryState.ENDED:
            before = self.delivery
            after = delivery_state.ended(before, why, now=self._clock.now_ms())
            if not await self._store(after):
                return
            if self.delivery is before:
                self.delivery = after
        self._report(why)

    def _report(self, why: str) -> None:
        has_ended = self.delivery.state is DeliveryState.ENDED
        event = "delivery.ended" if has_ended else "delivery.failing"
        facts = {"event": event, "delivery": self.delivery.id, "host": self.delivery.endpoint_host}
        log.warning("delivery %s: %s", self.delivery.name, why, extra=facts)

    # Kafka

    async def _store(self, wanted: Delivery | None = None) -> bool:
        """Until it, or what is wanted of it, is stored; raises NotOwner.

        False where it stopped before that.
        """
        while True:
            row = wanted or self.delivery
            try:
                await self._writer.put_row(row.key, encode(row))
            except Unavailable as error:
                self.trouble = str(error)
                self._is_dirty = True
                if not self._is_stopping:
                    await self._clock.sleep(AGAIN_S)
                # Whoever stopped it may have stored another row since then, or none at all.
                if self._is_stopping:
                    return False
            else:
                self.trouble = ""
                self._is_dirty = wanted is None and row is not self.delivery
                self._kept_s = self._clock.monotonic_s()
                return True

    async def _prove(self) -> None:
        """The partition is ours as of `proof_s` ago at most."""
        if self._clock.monotonic_s() - self._writer.proved_at > self._services.proof_s:
            await self._store()

    # Cursors

    def _encoded(self, batch: Batch) -> str:
        return self._services.hub.codec.encode(batch.cursor or self._plan.cursor(batch.to))

    def _positions(self, cursor: str) -> Positions | None:
        """A cursor's positions in the streams as they are now; None where one was recreated."""
        try:
            entries = self._services.hub.codec.decode(cursor).streams
        except CursorError:
            return None
        there = self._plan.cursor(tuple(() for _ in self._plan.sources)).streams
        if [(e.stream, e.generation) for e in entries] != [(e.stream, e.generation) for e in there]:
            return None
        return tuple(entry.partitions for entry in entries)


def message_id(delivery: Delivery, number: int, events: Sequence[bytes]) -> str:
    """The webhook-id of a batch: the same for the same events, at each attempt and replay.

    Partitions may be read in another order after a death: the order of events counts for nothing.
    """
    held = blake2b(b"\n".join(sorted(events)), digest_size=DIGEST_BYTES).hexdigest()
    return f"msg_{delivery.id}_{number}_{held}"


def body_of(
    name: str,
    events: Any,
    *,
    number: int,
    cursor: str,
    at: int,
    is_replayed: bool = False,
) -> str:
    """What an endpoint is sent: `cursor` is the one behind the last event, for any protocol."""
    timestamp = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
    head = {
        "type": TYPE,
        "timestamp": timestamp,
        "delivery": name,
        "batch": number,
        "cursor": cursor,
    } | ({"replayed": True} if is_replayed else {})
    return (orjson.dumps(head)[:-1] + b',"events":[' + b",".join(events) + b"]}").decode()
