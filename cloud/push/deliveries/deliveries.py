"""The deliveries of this process: made, looked at, changed, ended by their owners.

They are rows of the partitions of `ew.leases` that this proxy has (`edgewake.cloud.push`), all of
one owner on one partition; for others' `Elsewhere` is raised, and the request is passed on. An
owner is a principal, or of the anonymous an address: nobody reaches another's.

    DELIVERIES_MAX   of one proxy; of one owner a share of it. Each holds 128 KB of a batch, the
                     rest of a chunk, and one connection
    KEPT_S           that one that ended waits to be enabled; then it is forgotten, with its letters
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final
from weakref import WeakValueDictionary

from edgewake.cloud.calls import own_headers, sealing, webhook
from edgewake.cloud.calls.sealing import Endpoint
from edgewake.cloud.client_share import Bound
from edgewake.cloud.log.request import RequestError
from edgewake.cloud.log.wanted import Wanted
from edgewake.cloud.push.beginning import begin
from edgewake.cloud.push.chosen import (
    check_wake,
    check_whole,
    chosen,
    kept,
    names_of,
    publication_of,
    right_of,
)
from edgewake.cloud.push.deliveries import delivery_state
from edgewake.cloud.push.deliveries.courier import Courier, Services, Writer
from edgewake.cloud.push.guarded_tasks import GuardedTasks
from edgewake.cloud.push.leases import lease_rights
from edgewake.cloud.push.leases.lease_writer import NotOwner
from edgewake.cloud.push.proxy import Elsewhere, Standby
from edgewake.cloud.rights.principal import Action, Principal, holder
from edgewake.protocol.errors import EdgewakeError, Unavailable
from edgewake.protocol.leases.delivery import DeliveryRequest, SecretChange
from edgewake.protocol.leases.delivery_record import (
    DELIVERY,
    LETTER,
    Delivery,
    DeliveryState,
    Letter,
    decode_delivery,
    decode_letter,
    encode,
)
from edgewake.protocol.leases.lease import Subscription
from edgewake.protocol.leases.lease_record import partition_of

log = logging.getLogger("edgewake.deliveries")

DELIVERIES_MAX: Final = 200
"""The most deliveries of one proxy, of which an owner has a share: the module has the reasons."""
KEPT_S: Final = 30 * 86_400
"""A month: streams are not kept for as long by default, so there is nothing left to go on with."""
SWEEP_S: Final = 3600.0
"""Between two looks for those that ended so long ago."""
OWNER_BYTES: Final = 12
ID_BYTES: Final = 12
TEST_TYPE: Final = "edgewake.test"


class NoSuchDelivery(EdgewakeError):
    """No delivery, or letter of one, by this name, or it is another's."""


class DeliveryExists(EdgewakeError):
    """It was asked for as a new one, and its owner has one of this name."""


class TooManyDeliveries(EdgewakeError):
    """The bound is reached."""


@dataclass(slots=True)
class _Partition:
    writer: Writer
    couriers: dict[str, Courier] = field(default_factory=dict)
    """Couriers by delivery id."""
    locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    def lock(self, owner: str) -> asyncio.Lock:
        """An owner's changes come one after the other, and wait for no other's endpoint."""
        found = self.locks.get(owner)
        if found is None:
            found = self.locks[owner] = asyncio.Lock()
        return found


class Deliveries:
    """The deliveries of this process; its task `run` must run."""

    def __init__(
        self,
        services: Services,
        *,
        random_bytes: Callable[[int], bytes],
        client_share: float,
        deliveries_max: int = DELIVERIES_MAX,
    ) -> None:
        self._services = services
        self._clock = services.clock
        self._random_bytes = random_bytes
        self._bound = Bound("deliveries", deliveries_max, client_share)
        self._partitions: dict[int, _Partition] = {}
        self._tasks = GuardedTasks()
        self._testing: set[str] = set()
        """Ids of deliveries whose endpoint is being called for an operator."""

    # Ownership

    async def run(self) -> None:
        """Until cancelled; raises what killed a courier."""
        self._tasks.spawn(self._forget_ended(), "ended-deliveries")
        await self._tasks.run()

    async def _forget_ended(self) -> None:
        while True:
            await self._clock.sleep(SWEEP_S)
            for courier in [one for one in self._all() if self._is_over(one)]:
                with contextlib.suppress(Unavailable, Standby):  # the next look finds it again
                    await self._expel(courier.delivery.id, self._is_over)

    def _is_over(self, courier: Courier) -> bool:
        """Did it end so long ago that it is forgotten?"""
        found = courier.delivery
        kept_since = self._clock.now_ms() - KEPT_S * 1000
        return found.state is DeliveryState.ENDED and found.changed_at < kept_since

    def partition_owned(self, number: int, rows: Mapping[str, bytes], writer: Writer) -> None:
        """Go on with the deliveries of a partition."""
        self.partition_lost(number)
        partition = self._partitions[number] = _Partition(writer)
        for key, value in rows.items():
            try:
                if key.startswith(DELIVERY):
                    delivery = decode_delivery(value)
                    courier = Courier(delivery, writer, self._services)
                    partition.couriers[delivery.id] = courier
            except ValueError as error:
                log.error("%s: %s", key, error, extra={"event": "delivery.unreadable"})
        for letter in _letters(rows):
            courier_of = partition.couriers.get(letter.delivery)
            if courier_of is not None:
                courier_of.letters[letter.number] = letter
        for courier in partition.couriers.values():
            courier.start(self._tasks.spawn)
            self._tasks.spawn(courier.seal_anew(), f"seal-{courier.delivery.id}")
        self._count()

    def partition_lost(self, number: int) -> None:
        """Give up the deliveries of a partition: another proxy has them."""
        partition = self._partitions.pop(number, None)
        if partition is not None:
            for courier in partition.couriers.values():
                courier.abandon()
            self._count()

    def _go_on(self, partition: _Partition, courier: Courier) -> None:
        """Deliver on, where no other proxy has the partition by now."""
        if any(own is partition for own in self._partitions.values()):
            courier.start(self._tasks.spawn)

    def _count(self) -> None:
        self._services.metrics.deliveries.set(sum(1 for _ in self._all()))

    def _all(self) -> Iterator[Courier]:
        for partition in self._partitions.values():
            yield from partition.couriers.values()

    # What owners ask

    async def put(
        self,
        name: str,
        asked: DeliveryRequest,
        reader: Principal,
        client: str,
        *,
        must_be_new: bool = False,
    ) -> tuple[Courier, str | None, bool]:
        """Make a delivery, or change it: the courier, the secret where one was made, is it new?

        One that `must_be_new` changes no other; asked for again with the secret that it has, it is
        the one that was made. When this returns it is in Kafka. Raises Standby, Elsewhere,
        DeliveryExists, TooManyDeliveries, EndpointRefused, UnknownStream, UnknownPublication,
        CursorError, FilterError, RequestError or Unavailable.
        """
        owner, partition = self._owners(reader, client)
        async with partition.lock(owner):
            old = _find(partition, owner, name)
            self._check_may_put(owner, old, name, asked, reader, must_be_new=must_be_new)
            url = str(asked.url)
            headers = own_headers.after(asked.headers, url, _known_target(old))
            host = await self._services.caller.check(url)
            wanted = await chosen(self._services.hub, asked, reader)
            check_whole(wanted.publication, "a delivery")
            await check_wake(self._services.hub, wanted, reader)
            cursor = await begin(
                self._services.hub,
                wanted,
                reader,
                after=asked.after,
                start=asked.start,
                before=None if old is None else old.delivery.cursor,
                now_ms=self._clock.now_ms(),
            )
            made, secrets = self._secrets(asked.secret, old)
            right = right_of(reader, wanted)
            # Only now, when nothing can be refused any more: an endpoint waits for no request that
            # comes to nothing.
            if old is not None:
                await self._stopped(partition, old, reader)
                # It went on meanwhile, so what it has by now counts, and not what was found above.
                if asked.after is None:
                    cursor = old.delivery.cursor
            base = self._new(owner, name, wanted, cursor) if old is None else old.delivery
            endpoint = Endpoint(url, secrets, "", headers)
            enabled = delivery_state.enabled(base, now=self._clock.now_ms())
            delivery = _as_asked(enabled, asked, wanted, cursor).but(
                endpoint_host=host,
                sealed=self._services.sealer.seal(base.id, endpoint),
                right=right,
            )
            courier = old or Courier(delivery, partition.writer, self._services)
            await self._changed(partition, courier, delivery)
            return courier, made, old is None

    def _check_may_put(
        self,
        owner: str,
        old: Courier | None,
        name: str,
        asked: DeliveryRequest,
        reader: Principal,
        *,
        must_be_new: bool,
    ) -> None:
        """Raises TooManyDeliveries, DeliveryExists or RequestError."""
        if old is None:
            self._check_room(owner, reader)
            return
        if must_be_new and not _has_secret(old, asked.secret):
            raise DeliveryExists(f"you have a delivery named {name}: choose another name")
        self._check_letters(old, reader)

    def _new(self, owner: str, name: str, wanted: Subscription, cursor: str) -> Delivery:
        """A delivery that has neither endpoint nor right yet."""
        now = self._clock.now_ms()
        return Delivery(
            id=self._random_bytes(ID_BYTES).hex(),
            owner=owner,
            name=name,
            streams=wanted.streams,
            cursor=cursor,
            endpoint_host="",
            sealed="",
            created_at=now,
            changed_at=now,
        )

    def _secrets(self, given: str | None, old: Courier | None) -> tuple[str | None, str]:
        """The secret that was made, and what is kept. Raises RequestError."""
        target = _known_target(old)
        if given is not None:
            _check_secret(given)
            if target is None or given != target.newest_secret:
                return None, given
        if target is not None:
            return None, target.secret
        made = webhook.make_secret(self._random_bytes)
        return made, made

    def _check_room(self, owner: str, reader: Principal) -> None:
        owners = [courier.delivery.owner for courier in self._all()]
        held = owners.count(owner)
        refused = reader.limits.refusal("deliveries_max", held)
        refused = refused or self._bound.refusal(total=len(owners), held=held)
        if refused is not None:
            raise TooManyDeliveries(refused)

    def listed(self, reader: Principal, client: str) -> list[Courier]:
        """An owner's deliveries. Raises Standby and Elsewhere."""
        owner, partition = self._owners(reader, client)
        found = [c for c in partition.couriers.values() if c.delivery.owner == owner]
        return sorted(found, key=lambda courier: courier.delivery.name)

    def get(self, name: str, reader: Principal, client: str) -> Courier:
        """One of them. Raises Standby, Elsewhere and NoSuchDelivery."""
        owner, partition = self._owners(reader, client)
        return _there(partition, owner, name)

    def get_shown(self, name: str, reader: Principal, client: str) -> Courier:
        """One whose letters this reader may see: it sees all that the delivery shows.

        An owner is a name, and its tokens may have different rights. Raises as `get` does.
        """
        courier = self.get(name, reader, client)
        if not _shows(courier, reader):
            raise NoSuchDelivery(f"no delivery with your right is named {name[:80]!r}")
        return courier

    def _check_letters(self, courier: Courier, reader: Principal) -> None:
        """Letters are of the right that made them. Raises RequestError."""
        if courier.letters and not _shows(courier, reader):
            raise RequestError(
                "letters",
                f"{courier.delivery.name} has dead letters that were made with other rights than "
                "yours: drop them, or delete it, first",
            )

    async def _stopped(self, partition: _Partition, courier: Courier, reader: Principal) -> None:
        """Stop one that `reader` changes. Raises RequestError, and it goes on.

        It went on while the change was looked at, and what it set aside then is of its right, too.
        """
        await courier.stop()
        try:
            self._check_letters(courier, reader)
        except RequestError:
            self._go_on(partition, courier)
            raise

    async def remove(self, name: str, reader: Principal, client: str) -> None:
        """End a delivery and forget it, with its letters; no further call is begun."""
        owner, partition = self._owners(reader, client)
        async with partition.lock(owner):
            await self._remove(partition, _there(partition, owner, name))

    async def expel(self, delivery_id: str) -> bool:
        """End one and forget it, whoever owns it; False where it is not one of this proxy's.

        Raises Standby and Unavailable.
        """
        return await self._expel(delivery_id, lambda _: True)

    async def _expel(self, delivery_id: str, is_wanted: Callable[[Courier], bool]) -> bool:
        for partition in list(self._partitions.values()):
            courier = partition.couriers.get(delivery_id)
            if courier is None:
                continue
            async with partition.lock(courier.delivery.owner):
                # It may have been changed or ended while its owner's last change was waited for.
                if partition.couriers.get(delivery_id) is courier and is_wanted(courier):
                    await self._remove(partition, courier)
                    return True
        return False

    async def _remove(self, partition: _Partition, courier: Courier) -> None:
        courier.abandon()
        # Its own row last: what is left of a delivery otherwise could not be deleted.
        letters = dict(courier.letters)
        courier.letters.clear()
        keys = [*(one.key for one in letters.values()), courier.delivery.key]
        try:
            for key in keys:
                await partition.writer.put_row(key, None)
        except NotOwner as error:
            raise _moved() from error
        except Unavailable:
            courier.letters.update(letters)
            self._go_on(partition, courier)
            raise
        partition.couriers.pop(courier.delivery.id, None)
        self._count()

    async def enable(self, name: str, reader: Principal, client: str) -> Courier:
        """Try again now; one that ended goes on from where it stands, with this reader's right."""
        owner, partition = self._owners(reader, client)
        async with partition.lock(owner):
            courier = _there(partition, owner, name)
            self._check_letters(courier, reader)
            hub, wanted = self._services.hub, kept(self._services.hub, courier.delivery)
            check_whole(wanted.publication, "a delivery")
            if wanted.publication is None:
                await hub.check(wanted.streams, reader)
            await check_wake(hub, wanted, reader)
            await hub.check_filters(wanted, reader)
            await self._stopped(partition, courier, reader)
            right = right_of(reader, wanted)
            changed = delivery_state.enabled(courier.delivery, now=self._clock.now_ms())
            await self._changed(partition, courier, changed.but(right=right))
            return courier

    async def change_secret(
        self, name: str, asked: SecretChange, reader: Principal, client: str
    ) -> tuple[Courier, str | None]:
        """Sign with another secret, and for a while with the old one, too. Raises RequestError."""
        owner, partition = self._owners(reader, client)
        async with partition.lock(owner):
            courier = _there(partition, owner, name)
            made = webhook.make_secret(self._random_bytes) if asked.secret is None else None
            new = asked.secret or made or ""
            _check_secret(new)
            target = _target(courier)[0]
            if new == target.newest_secret:  # asked again: the old one goes on signing
                return courier, None
            await courier.stop()
            both = Endpoint(target.url, f"{new} {target.newest_secret}", "", target.headers)
            delivery = courier.delivery
            now = self._clock.now_ms()
            changed = delivery.but(
                sealed=self._services.sealer.seal(delivery.id, both),
                old_secret_until=now + asked.keep_old_s * 1000,
                changed_at=now,
            )
            await self._changed(partition, courier, changed)
            return courier, made

    async def _changed(self, partition: _Partition, courier: Courier, delivery: Delivery) -> None:
        """Store it and go on; where that fails it goes on as it was."""
        try:
            await partition.writer.put_row(delivery.key, encode(delivery))
        except NotOwner as error:
            raise _moved() from error
        except Unavailable:
            if delivery.id not in partition.couriers:
                # It may be committed yet, and its owner, who is answered no, would be called.
                undone = partition.writer.put_row(delivery.key, None)
                await asyncio.gather(undone, return_exceptions=True)
            raise
        else:
            courier.delivery = delivery
            partition.couriers[delivery.id] = courier
        finally:
            if courier.delivery.id in partition.couriers:
                self._go_on(partition, courier)
        self._count()

    async def test(self, name: str, reader: Principal, client: str) -> webhook.Outcome:
        """Call the endpoint once with no event, now."""
        return await self._call_without_event(self.get(name, reader, client))

    def test_soon(self, delivery_id: str) -> bool:
        """Have its endpoint called once for an operator; False where it is not one of this proxy's.

        Its row says how it went. A second test while one is under way is that one.
        """
        for partition in self._partitions.values():
            courier = partition.couriers.get(delivery_id)
            if courier is not None:
                if delivery_id not in self._testing:
                    self._testing.add(delivery_id)
                    self._tasks.spawn(self._test(partition, courier), f"test-{delivery_id}")
                return True
        return False

    async def _test(self, partition: _Partition, courier: Courier) -> None:
        delivery_id, owner = courier.delivery.id, courier.delivery.owner
        try:
            try:
                outcome = await self._call_without_event(courier)
                error = "" if isinstance(outcome, webhook.Taken) else outcome.why
            except Unavailable as caught:
                error = str(caught)
            async with partition.lock(owner):
                if partition.couriers.get(delivery_id) is courier:
                    await courier.tell_tested(error)
        finally:
            self._testing.discard(delivery_id)

    async def _call_without_event(self, courier: Courier) -> webhook.Outcome:
        target, secrets = _target(courier)
        number, name = self._random_bytes(ID_BYTES).hex(), courier.delivery.name
        body = f'{{"type":"{TEST_TYPE}","delivery":"{name}","events":[]}}'
        id_ = f"msg_{courier.delivery.id}_test_{number}"
        signed = webhook.Signed(secrets, id_, body, target.headers)
        return await self._services.caller.call(target.url, signed)

    async def replay(
        self, name: str, number: int, reader: Principal, client: str
    ) -> webhook.Outcome:
        """Send a letter once more, now."""
        courier = self.get_shown(name, reader, client)
        _target(courier)
        if courier.delivery.state is DeliveryState.ENDED:
            raise NoSuchDelivery(f"{name} ended: {courier.delivery.why}; enable it first")
        try:
            return await courier.replay(_letter(courier, number))
        except NotOwner as error:
            raise _moved() from error

    async def drop_letter(self, name: str, number: int, reader: Principal, client: str) -> None:
        """Forget a letter."""
        courier = self.get(name, reader, client)
        try:
            await courier.drop(_letter(courier, number))
        except NotOwner as error:
            raise _moved() from error

    def _owners(self, reader: Principal, client: str) -> tuple[str, _Partition]:
        """An owner and its partition. Raises Standby and Elsewhere."""
        owner = owner_of(reader, client)
        number = partition_of(owner)
        partition = self._partitions.get(number)
        if partition is None:
            raise Elsewhere(number)
        return owner, partition


def _shows(courier: Courier, reader: Principal) -> bool:
    """Does this reader see all that a delivery shows?"""
    stored = courier.delivery
    return lease_rights.covers(reader, stored.right, stored.streams, Action.READ)


def _check_secret(text: str) -> None:
    """Raises RequestError."""
    try:
        webhook.check_secret(text)
    except ValueError as error:
        raise RequestError("secret", str(error)) from None


def owner_of(reader: Principal, client: str) -> str:
    """Stands for an owner."""
    text = holder(reader, client).encode()
    return blake2b(text, digest_size=OWNER_BYTES, person=b"delivery owner").hexdigest()


def _as_asked(delivery: Delivery, asked: DeliveryRequest, wanted: Wanted, cursor: str) -> Delivery:
    """The delivery with all that was asked for but its endpoint and right."""
    return delivery.but(
        streams=wanted.streams,
        where=wanted.where,
        select=wanted.select,
        publication=publication_of(wanted),
        devices=names_of(wanted.devices),
        sample=wanted.sample,
        per=wanted.per,
        on_gap=asked.on_gap,
        cursor=cursor,
        # A batch in hand is from its cursor on: from another one it would be other events.
        pending=delivery.pending if delivery.cursor == cursor else None,
        kind=asked.kind,
        events_max=asked.events_max,
        events_at_once=None,
        wait_s=asked.wait_s,
        max_rate=asked.max_rate,
    )


def _find(partition: _Partition, owner: str, name: str) -> Courier | None:
    for courier in partition.couriers.values():
        if courier.delivery.owner == owner and courier.delivery.name == name:
            return courier
    return None


def _there(partition: _Partition, owner: str, name: str) -> Courier:
    found = _find(partition, owner, name)
    if found is None:
        raise NoSuchDelivery(f"no delivery of yours is named {name[:80]!r}")
    return found


def _target(courier: Courier) -> tuple[Endpoint, str]:
    """Raises Unavailable where no key here opens it."""
    try:
        return courier.target()
    except (sealing.UnknownKey, sealing.Damaged) as error:
        raise Unavailable(str(error)) from None


def _known_target(courier: Courier | None) -> Endpoint | None:
    """The endpoint of before; None: there is none, or no key here opens it."""
    if courier is None:
        return None
    with contextlib.suppress(sealing.UnknownKey, sealing.Damaged):
        return courier.target()[0]
    return None


def _has_secret(courier: Courier, secret: str | None) -> bool:
    """Does it sign with this one? Only who asked for it knows."""
    target = _known_target(courier)
    return target is not None and secret is not None and secret == target.newest_secret


def _letter(courier: Courier, number: int) -> Letter:
    found = courier.letters.get(number)
    if found is None:
        raise NoSuchDelivery(f"{courier.delivery.name} has no dead letter {number}")
    return found


def _letters(rows: Mapping[str, bytes]) -> Iterator[Letter]:
    for key, value in rows.items():
        if not key.startswith(LETTER):
            continue
        try:
            yield decode_letter(value)
        except ValueError as error:
            log.error("%s: %s", key, error, extra={"event": "delivery.unreadable"})


def _moved() -> Standby:
    return Standby("the deliveries went to another proxy; ask again")
