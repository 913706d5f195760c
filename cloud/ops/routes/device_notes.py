"""Routes about people's notes on devices."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel

from edgewake.cloud.ops.routes.shared import DeviceName, Services
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol import topics
from edgewake.protocol.ops.board import MEMBERS_MAX
from edgewake.protocol.ops.device_note import NOTES_MAX, DeviceNote, Group, NoteText


class GroupView(BaseModel):
    """A group of devices."""

    group: str
    devices: list[str]
    total: int


def router(services: Services) -> APIRouter:
    """Makes the routes about notes and groups."""
    routes = APIRouter(tags=["devices"])
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
