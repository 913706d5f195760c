"""Routes about requests of devices."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from edgewake.cloud.ops.routes.shared import (
    DeviceName,
    Limit,
    Page,
    Services,
    is_hidden,
    page_of,
    reader_of,
)
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.downlink.down_message import ReplyState
from edgewake.protocol.downlink.down_row import key_of
from edgewake.protocol.downlink.downlink import BODY_CHARS_MAX, OUTPUT_CHARS_MAX, REQUEST_ID_PATTERN
from edgewake.protocol.downlink.request_row import RequestRow
from edgewake.protocol.names import FIELD_PATTERN

OPEN = "open"
RequestIdPath = Annotated[str, Path(pattern=REQUEST_ID_PATTERN)]
State = Annotated[Literal["open", "answered", "refused", "expired"] | None, Query()]
Name = Annotated[str | None, Query(pattern=f"^{FIELD_PATTERN.pattern}$")]
AfterRequest = Annotated[str | None, Query(max_length=130)]


class ReplyBody(BaseModel):
    """A reply to a device."""

    model_config = ConfigDict(extra="forbid")

    state: Literal["answered", "refused"] = "answered"
    body: Annotated[str, Field(max_length=BODY_CHARS_MAX)] = ""
    """Any text."""
    detail: Annotated[str, Field(max_length=OUTPUT_CHARS_MAX)] = ""
    """The reason, for people."""


class RequestView(BaseModel):
    """A device's request and its reply."""

    key: str
    """`DEVICE|ID`."""
    id: str
    device: str
    state: str
    """open, or the state of the reply: answered, refused, expired."""
    via: str
    """The gateway that brought it, for a thing behind one; the reply goes there."""
    name: str
    body: str
    received_at: int
    expires_at: int
    reply: str | None
    detail: str
    replied_at: int | None
    replied_by: str
    """Name of the key that replied; empty: the cloud itself did."""
    delivered_at: int | None
    """When the device confirmed the reply."""


def _state(row: RequestRow) -> str:
    return OPEN if row.reply is None else row.reply.state.value


def _view(row: RequestRow) -> RequestView:
    facts = row.model_dump(exclude={"reply", "partition", "offset"})
    body, detail = (None, "") if row.reply is None else (row.reply.body, row.reply.detail)
    return RequestView(
        key=key_of(row.device, row.id), state=_state(row), reply=body, detail=detail, **facts
    )


def router(services: Services) -> APIRouter:
    """Makes the routes about requests of devices."""
    routes = APIRouter(tags=["devices"])
    table, desk = services.tables.requests, services.requests

    @routes.get("/v1/requests")
    async def requests(
        request: Request,
        limit: Limit = 100,
        after: AfterRequest = None,
        state: State = None,
        name: Name = None,
        device: str | None = None,
    ) -> Page[RequestView]:
        """List devices' requests, sorted by device and id.

        The list has all open ones, and the last hundred of each device that ended.
        """
        rows, reader = table.all() if device is None else table.of(device), reader_of(request)
        wanted = {
            key_of(row.device, row.id): row
            for row in rows
            if state in (None, _state(row))
            and name in (None, row.name)
            and (reader is None or reader.may_command(row.device))
        }
        keys = sorted(key for key in wanted if after is None or key > after)
        return page_of(keys, lambda key: _view(wanted[key]), limit=limit, total=len(wanted))

    @routes.get("/v1/devices/{device}/requests/{request_id}", responses=problems(404))
    async def one(device: DeviceName, request_id: RequestIdPath, request: Request) -> RequestView:
        """Show a request."""
        return _view(desk.one(device, request_id, is_hidden=is_hidden(request, device)))

    @routes.post(
        "/v1/devices/{device}/requests/{request_id}/reply",
        status_code=202,
        responses=problems(404, 409),
    )
    async def reply(
        device: DeviceName, request_id: RequestIdPath, body: ReplyBody, request: Request
    ) -> RequestView:
        """Reply to a request. The device gets the reply once, also if it sleeps now.

        Repeating the reply changes nothing; a different one is refused.
        """
        by, hidden = request.state.holder.name, is_hidden(request, device, is_change=True)
        state = ReplyState(body.state)
        return _view(
            await desk.reply(
                device, request_id, state, body.body, body.detail, by=by, is_hidden=hidden
            )
        )

    return routes
