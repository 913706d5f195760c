"""Routes about devices, and people's notes on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel

from edgewake.cloud.ops.routes.shared import (
    PAGE_DEFAULT,
    After,
    AskedStream,
    DeviceName,
    Limit,
    Page,
    Services,
    reader_of,
)
from edgewake.cloud.ops.tables.device_table import DeviceTable, Mark, Sort
from edgewake.cloud.ops.tables.devices import DevicePresence, DeviceView
from edgewake.cloud.rights.principal import Principal
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.ops.board import MEMBERS_MAX
from edgewake.protocol.ops.device_note import NOTES_MAX, DeviceNote, Group, NoteText

Part = Annotated[str, Query(max_length=64, description="Part of the name, case-insensitive.")]


class DevicesPage(Page[DeviceView]):
    """A page of devices, sorted by name unless requested otherwise."""

    counts: dict[str, int]
    """State or mark → number of devices among all."""
    versions: dict[str, int]
    """Version of an agent → number of devices that run it, among all."""


class GroupView(BaseModel):
    """A group of devices."""

    group: str
    devices: list[str]
    total: int


@dataclass(frozen=True, slots=True)
class _Shares:
    """What principals see of the table of devices."""

    table: DeviceTable
    clock: Clock

    def page(
        self,
        reader: Principal,
        after: str | None,
        limit: int,
        state: DevicePresence | None,
        *,
        part: str,
        group: str | None,
        mark: Mark | None,
        stream: str | None,
        sort: Sort,
        version: str | None,
    ) -> DevicesPage:
        """A page of the devices that it may know of, which alone are counted. Raises Problem."""
        if group is not None:
            raise Problem(
                403,
                "role",
                "groups are people's notes on the whole fleet, which nothing narrows: this needs "
                "the action view",
            )
        named, table = reader.named_devices, self.table
        known = table.names() if named is None else table.names_in(named)
        seen = [name for name in known if reader.sees_device(name, table.streams_of(name))]
        wanted = seen
        if stream is not None:
            wanted = [name for name in seen if reader.sees_on(name, stream)]
        folded = part.casefold()
        is_known = sort is Sort.NAME or after in seen  # where a hidden one stands tells of it
        found, total = table.find(
            after if is_known else None,
            limit + 1,
            lambda name: folded in name.casefold(),
            state,
            mark=mark,
            stream=stream,
            sort=sort,
            version=version,
            among=wanted,
            now=self.clock.now_ms(),
        )
        presences, marks, versions = table.tally(seen)
        shown = (self.of(one, reader) for one in found[:limit])
        counts = {one.value: presences[one] for one in DevicePresence}
        return DevicesPage(
            items=[one for one in shown if one is not None],
            next=found[limit - 1].device if len(found) > limit else None,
            total=total,
            counts=counts | {one.value: marks[one] for one in Mark},
            versions=dict(versions),
        )

    def of(self, found: DeviceView | None, reader: Principal | None) -> DeviceView | None:
        """A device, with the streams that may be read; None where it is hidden.

        What its agent reports (backlog, losses, version) is of the device as a whole. Its notes are
        people's; a gateway is another device.
        """
        if found is None or reader is None:
            return found
        if not reader.sees_device(found.device, found.streams):
            return None
        sees_gateway = bool(found.via) and reader.sees_device(
            found.via, self.table.streams_of(found.via)
        )
        return found.model_copy(
            update={
                "streams": [name for name in found.streams if reader.sees_on(found.device, name)],
                "via": found.via if sees_gateway else "",
                "reason": found.reason if sees_gateway else "",
                "former": [],
                "waits": None,
            }
        )


def router(services: Services) -> APIRouter:
    """Makes the routes about devices."""
    routes = APIRouter(tags=["devices"])
    table, notes, clock = services.tables.devices, services.tables.notes, services.clock
    shares = _Shares(table, clock)

    def noted(found: DeviceView) -> DeviceView:
        note = notes.get(found.device)
        if note is None:
            return found
        return found.model_copy(update={"note": note.note, "groups": list(note.groups)})

    @routes.get("/v1/devices")
    async def devices(
        request: Request,
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
        state: DevicePresence | None = None,
        q: Part = "",
        group: Annotated[Group | None, Query()] = None,
        has: Mark | None = None,
        stream: AskedStream = None,
        sort: Sort = Sort.NAME,
        version: Annotated[str | None, Query(max_length=64)] = None,
    ) -> DevicesPage:
        """List devices, sorted by name, by last contact, by backlog or by losses.

        `state` is at most a second old. `has` selects devices whose readings have waited for a
        minute or were lost, or with or without an agent; `stream` those that sent on it; `version`
        those whose agent reports it. Who has grants is listed the devices that they name, as far as
        these send what may be read, or may be asked for commands.
        """
        reader = reader_of(request)
        if reader is not None:
            return shares.page(
                reader, after, limit, state,
                part=q, group=group, mark=has, stream=stream, sort=sort, version=version,
            )  # fmt: skip
        if not q and sort is Sort.NAME and (group, has, stream, version) == (None,) * 4:
            found = table.page(after, limit + 1, state, now=clock.now_ms())
            total = table.total(state)
        else:
            wanted = _filter(notes, q, group)
            found, total = table.find(
                after,
                limit + 1,
                wanted,
                state,
                mark=has,
                stream=stream,
                sort=sort,
                version=version,
                now=clock.now_ms(),
            )
        following = found[limit - 1].device if len(found) > limit else None
        counts = {one.value: table.total(one) for one in DevicePresence}
        counts |= {one.value: table.marked[one] for one in Mark}
        items = [noted(one) for one in found[:limit]]
        return DevicesPage(
            items=items,
            next=following,
            total=total,
            counts=counts,
            versions=dict(table.versions),
        )

    @routes.get("/v1/devices/{device}", responses=problems(404))
    async def device(device: DeviceName, request: Request) -> DeviceView:
        """Show a device."""
        found = shares.of(table.get(device, now=clock.now_ms()), reader_of(request))
        if found is None:
            raise Problem(404, "no_such_device", f"nothing is known of device {device!r}")
        return noted(found) if reader_of(request) is None else found

    @routes.delete("/v1/devices/{device}", status_code=204, responses=problems(404))
    async def remove(device: DeviceName) -> None:
        """Remove a device from the list.

        Its readings stay, and it is listed again when it sends again.
        """
        if device not in table:
            raise Problem(404, "no_such_device", f"nothing is known of device {device!r}")
        for key in table.keys_of(device):
            await services.writer.write(topics.DEVICES, key, None)
        if device in notes:
            await services.writer.write(topics.NOTES, device, None)
        await services.writer.remove_unread(topics.ATTRIBUTES, device)

    routes.include_router(_notes(services))
    return routes


def _notes(services: Services) -> APIRouter:
    """Makes the routes about notes and groups."""
    routes = APIRouter()
    notes = services.tables.notes

    @routes.get("/v1/groups")
    async def groups() -> dict[str, int]:
        """List groups with their numbers of devices."""
        counts = Counter(group for note in notes.values() for group in note.groups)
        return dict(sorted(counts.items()))

    @routes.get("/v1/groups/{group}")
    async def members(group: Annotated[Group, Path()]) -> GroupView:
        """List the devices in a group by name, at most a thousand; an unknown group has none."""
        found = sorted(device for device, said in notes.items() if group in said.groups)
        return GroupView(group=group, devices=found[:MEMBERS_MAX], total=len(found))

    @routes.put("/v1/devices/{device}/note", responses=problems(409))
    async def note(device: DeviceName, body: NoteText, request: Request) -> DeviceNote:
        """Store a note about a device and its groups, replacing the previous note.

        The device may still be unknown.
        """
        if device not in notes and len(notes) >= NOTES_MAX:
            raise Problem(
                409,
                "too_many_notes",
                f"{NOTES_MAX} devices have notes already, the most at once; remove some",
            )
        said = DeviceNote(
            device=device,
            note=body.note,
            groups=tuple(sorted(set(body.groups))),
            changed_at=services.clock.now_ms(),
            changed_by=request.state.holder.name,
        )
        is_empty = not said.note and not said.groups
        await services.writer.write(topics.NOTES, device, None if is_empty else said)
        return said

    return routes


def _filter(notes: dict[str, DeviceNote], part: str, group: str | None) -> Callable[[str], bool]:
    """Makes a predicate: the name contains `part`, and the device is in `group`."""
    members = {device for device, note in notes.items() if group in note.groups}
    folded = part.casefold()
    return lambda name: folded in name.casefold() and (group is None or name in members)
