"""The groups of this process, managed by their owners and shared by holders of a key or token.

They are rows of the partitions of `ew.leases` that this proxy has, as deliveries are; for other
rows `Elsewhere` is raised, and the request is passed on.

    GROUPS_MAX    of one proxy, of one owner a share of it: each holds up to 2 MB of events
    WAITING_MAX   clients that wait for events of one group
    KEPT_S        that nobody asks for a group until it is forgotten
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from edgewake.cloud.client_share import Bound
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.wanted import Wanted
from edgewake.cloud.push.beginning import begin
from edgewake.cloud.push.chosen import (
    check_unpaced,
    check_whole,
    chosen,
    names_of,
    publication_of,
    right_of,
)
from edgewake.cloud.push.deliveries.courier import Writer
from edgewake.cloud.push.deliveries.deliveries import owner_of
from edgewake.cloud.push.groups.sharing import Sharing, Taken
from edgewake.cloud.push.guarded_tasks import GuardedTasks
from edgewake.cloud.push.leases import lease_rights
from edgewake.cloud.push.leases.lease_writer import NotOwner
from edgewake.cloud.push.proxy import Elsewhere, Standby
from edgewake.cloud.rights.principal import Action, Principal
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import EdgewakeError, Unavailable
from edgewake.protocol.leases.group import Ack, GroupRequest, Take
from edgewake.protocol.leases.group_record import GROUP, Group, decode, encode
from edgewake.protocol.leases.lease_record import partition_of

log = logging.getLogger("edgewake.groups")

GROUPS_MAX: Final = 100
"""The most groups of one proxy, of which an owner has a share: the module has the reasons."""
WAITING_MAX: Final = 100
KEPT_S: Final = 30 * 86_400
"""A month: streams are not kept for as long by default, so there is nothing left to go on with."""
SWEEP_S: Final = 3600.0
"""Between two looks for groups that nobody asked for."""
ID_BYTES: Final = 12

T = TypeVar("T")


class NoSuchGroup(EdgewakeError):
    """No group by this name, or it is another's."""


class GroupDiffers(EdgewakeError):
    """A group of this name shares something else."""


class TooManyGroups(EdgewakeError):
    """A bound is reached."""


@dataclass(slots=True)
class _Partition:
    writer: Writer
    groups: dict[str, Sharing] = field(default_factory=dict)
    """Groups by id."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Groups:
    """The groups of this process; its task `run` must run."""

    def __init__(
        self,
        hub: Hub,
        clock: Clock,
        *,
        random_bytes: Callable[[int], bytes],
        client_share: float,
        groups_max: int = GROUPS_MAX,
    ) -> None:
        self._hub, self._clock, self._random_bytes = hub, clock, random_bytes
        self._bound = Bound("groups", groups_max, client_share)
        self._partitions: dict[int, _Partition] = {}
        self._tasks = GuardedTasks()

    async def run(self) -> None:
        """Until cancelled; raises what killed a task."""
        self._tasks.spawn(self._forget_unused(), "unused-groups")
        await self._tasks.run()

    async def _forget_unused(self) -> None:
        while True:
            await self._clock.sleep(SWEEP_S)
            for sharing in [one for one in self._all() if self._is_unused(one)]:
                with contextlib.suppress(Unavailable, Standby):  # the next look finds it again
                    await self._expel(sharing.group.id, self._is_unused)

    def _is_unused(self, sharing: Sharing) -> bool:
        kept_since = self._clock.now_ms() - KEPT_S * 1000
        return not sharing.waiting and sharing.group.used_at < kept_since

    def partition_owned(self, number: int, rows: Mapping[str, bytes], writer: Writer) -> None:
        """Go on with the groups of a partition."""
        self.partition_lost(number)
        partition = self._partitions[number] = _Partition(writer)
        for key, value in rows.items():
            if not key.startswith(GROUP):
                continue
            try:
                group = decode(value)
            except ValueError as error:
                log.error("%s: %s", key, error, extra={"event": "group.unreadable"})
            else:
                partition.groups[group.id] = Sharing(group, writer, self._hub, self._clock)

    def partition_lost(self, number: int) -> None:
        """Give up the groups of a partition: another proxy has them."""
        partition = self._partitions.pop(number, None)
        if partition is not None:
            for sharing in partition.groups.values():
                sharing.abandon()

    # What clients ask

    async def put(
        self, name: str, asked: GroupRequest, reader: Principal, client: str
    ) -> tuple[Sharing, bool]:
        """Make a group, unless the same one exists; is it new?

        One that exists shows what `reader` sees from its cursor on, where that is more. Raises
        Standby, Elsewhere, TooManyGroups, GroupDiffers, UnknownStream, UnknownPublication,
        CursorError, FilterError, RequestError or Unavailable.
        """
        owner, partition = self._owners(reader, client)
        async with partition.lock:
            wanted = await chosen(self._hub, asked, reader)
            check_whole(wanted.publication, "a group")
            check_unpaced(wanted.publication)
            old = _find(partition, owner, name)
            if old is not None:
                if not _is_of(old.group, wanted):
                    raise GroupDiffers(
                        f"{name} shares other streams, or with another filter or other columns: "
                        "delete it first, or choose another name"
                    )
                self._check_right(old, reader)
                kept = old.group.right
                if lease_rights.sees_more(reader, kept, wanted.streams, Action.READ):
                    await _written(old.widen(right_of(reader, wanted)))
                return old, False
            self._check_room(owner, reader)
            now = self._clock.now_ms()
            cursor = await begin(
                self._hub,
                wanted,
                reader,
                after=asked.after,
                start=asked.start,
                now_ms=now,
            )
            group = Group(
                id=self._random_bytes(ID_BYTES).hex(),
                owner=owner,
                name=name,
                streams=wanted.streams,
                where=wanted.where,
                select=wanted.select,
                publication=publication_of(wanted),
                devices=names_of(wanted.devices),
                sample=wanted.sample,
                per=wanted.per,
                cursor=cursor,
                right=right_of(reader, wanted),
                created_at=now,
                used_at=now,
            )
            sharing = Sharing(group, partition.writer, self._hub, self._clock)
            await _written(partition.writer.put_row(group.key, encode(group)))
            partition.groups[group.id] = sharing
            return sharing, True

    def listed(self, reader: Principal, client: str) -> list[Sharing]:
        """An owner's groups. Raises Standby and Elsewhere."""
        owner, partition = self._owners(reader, client)
        found = [one for one in partition.groups.values() if one.group.owner == owner]
        return sorted(found, key=lambda sharing: sharing.group.name)

    def get(self, name: str, reader: Principal, client: str) -> Sharing:
        """One of them. Raises Standby, Elsewhere and NoSuchGroup."""
        owner, partition = self._owners(reader, client)
        found = _there(partition, owner, name)
        self._check_right(found, reader)
        return found

    async def take(
        self,
        name: str,
        asked: Take,
        reader: Principal,
        client: str,
        is_there: Callable[[], Awaitable[bool]],
    ) -> Taken:
        """Events for one client. Raises as `get` does, TooManyGroups and Unavailable."""
        try:
            sharing = self.get(name, reader, client)
        except Elsewhere as error:
            raise Elsewhere(error.partition, asked.wait_s) from None
        if sharing.waiting >= WAITING_MAX:
            raise TooManyGroups(f"{WAITING_MAX} clients wait for events of {name} already")
        return await _written(
            sharing.take(
                asked.max,
                wait_s=asked.wait_s,
                hold_s=asked.hold_s,
                done=asked.ack,
                start=self._tasks.spawn,
                is_there=is_there,
            )
        )

    async def acknowledge(
        self, name: str, asked: Ack, reader: Principal, client: str
    ) -> tuple[int, int]:
        """How many were done now, and released. Raises as `take` does."""
        sharing = self.get(name, reader, client)
        return await _written(
            sharing.acknowledge(asked.done, asked.release, asked.after_s, self._tasks.spawn)
        )

    async def remove(self, name: str, reader: Principal, client: str) -> None:
        """Forget a group, and what it did; its owner may, whatever it sees now."""
        owner, partition = self._owners(reader, client)
        async with partition.lock:
            await self._remove(partition, _there(partition, owner, name))

    async def expel(self, group_id: str) -> bool:
        """Forget a group, whoever owns it; False where it is not one of this proxy's.

        Raises Standby and Unavailable.
        """
        return await self._expel(group_id, lambda _: True)

    async def _expel(self, group_id: str, is_wanted: Callable[[Sharing], bool]) -> bool:
        for partition in list(self._partitions.values()):
            async with partition.lock:
                sharing = partition.groups.get(group_id)
                if sharing is not None and is_wanted(sharing):
                    await self._remove(partition, sharing)
                    return True
        return False

    async def _remove(self, partition: _Partition, sharing: Sharing) -> None:
        await sharing.close()
        try:
            await _written(partition.writer.put_row(sharing.group.key, None))
        except Unavailable:
            sharing.reopen()
            raise
        partition.groups.pop(sharing.group.id, None)

    def _check_right(self, sharing: Sharing, reader: Principal) -> None:
        """Raises GroupDiffers for a reader who does not see all that the group shows."""
        group = sharing.group
        if not lease_rights.covers(reader, group.right, group.streams, Action.READ):
            raise GroupDiffers(
                f"{group.name} shows more than you see: its right is another one than yours. To go "
                "on with less, delete it and make it again `after` its cursor, which GET "
                "/v1/groups tells"
            )

    def _check_room(self, owner: str, reader: Principal) -> None:
        groups: Sequence[Sharing] = list(self._all())
        held = sum(one.group.owner == owner for one in groups)
        refused = reader.limits.refusal("groups_max", held)
        refused = refused or self._bound.refusal(total=len(groups), held=held)
        if refused is not None:
            raise TooManyGroups(refused)

    def _all(self) -> Iterator[Sharing]:
        for partition in self._partitions.values():
            yield from partition.groups.values()

    def _owners(self, reader: Principal, client: str) -> tuple[str, _Partition]:
        owner = owner_of(reader, client)
        number = partition_of(owner)
        partition = self._partitions.get(number)
        if partition is None:
            raise Elsewhere(number)
        return owner, partition


def _find(partition: _Partition, owner: str, name: str) -> Sharing | None:
    for sharing in partition.groups.values():
        if sharing.group.owner == owner and sharing.group.name == name:
            return sharing
    return None


def _there(partition: _Partition, owner: str, name: str) -> Sharing:
    found = _find(partition, owner, name)
    if found is None:
        raise NoSuchGroup(f"no group of yours is named {name[:80]!r}")
    return found


def _is_of(group: Group, wanted: Wanted) -> bool:
    """Does it share the same, of a publication the streams that this had when it was made?"""
    told = (group.streams, group.publication, group.where, group.select, group.devices)
    return (*told, group.sample, group.per) == (
        wanted.streams,
        publication_of(wanted),
        wanted.where,
        wanted.select,
        names_of(wanted.devices),
        wanted.sample,
        wanted.per,
    )


async def _written(work: Awaitable[T]) -> T:
    """What is done, unless the group went to another proxy meanwhile: Standby."""
    try:
        return await work
    except NotOwner as error:
        raise Standby("the group went to another proxy; ask again") from error
