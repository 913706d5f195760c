"""Routes about what devices ask for."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from edgewake.cloud.ops.routes.shared import DeviceName, Limit, Page, Services, page_of
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
    """The reply to a device."""

    model_config = ConfigDict(extra="forbid")

    state: Literal["answered", "refused"] = "answered"
    body: Annotated[str, Field(max_length=BODY_CHARS_MAX)] = ""
    """Text of any kind."""
    detail: Annotated[str, Field(max_length=OUTPUT_CHARS_MAX)] = ""
    """Why, for people."""


class RequestView(BaseModel):
    """A device's request, and the reply to it."""

    key: str
    """`DEVICE|ID`."""
    id: str
    device: str
    state: str
    """open, else the reply's: answered, refused, expired."""
    via: str
    """The gateway that it came by, of a thing behind one; it gets the reply."""
    name: str
    body: str
    received_at: int
    expires_at: int
    reply: str | None
    detail: str
    replied_at: int | None
    replied_by: str
    """Name of the key; empty: the cloud said it itself."""
    delivered_at: int | None
    """When the device said that it has the reply."""


def _state(row: RequestRow) -> str:
    return OPEN if row.reply is None else row.reply.state.value


def _view(row: RequestRow) -> RequestView:
    facts = row.model_dump(exclude={"reply", "partition", "offset"})
    body, detail = (None, "") if row.reply is None else (row.reply.body, row.reply.detail)
    return RequestView(
        key=key_of(row.device, row.id), state=_state(row), reply=body, detail=detail, **facts
    )


def router(services: Services) -> APIRouter:
    """See what is asked, and answer it."""
    routes = APIRouter(tags=["devices"])
    table, desk = services.tables.requests, services.requests

    @routes.get("/v1/requests")
    async def requests(
        limit: Limit = 100,
        after: AfterRequest = None,
        state: State = None,
        name: Name = None,
        device: str | None = None,
    ) -> Page[RequestView]:
        """List devices' requests in order of device and id.

        They are all open ones, and the last hundred of each device that ended.
        """
        rows = table.all() if device is None else table.of(device)
        wanted = {
            key_of(row.device, row.id): row
            for row in rows
            if state in (None, _state(row)) and name in (None, row.name)
        }
        keys = sorted(key for key in wanted if after is None or key > after)
        return page_of(keys, lambda key: _view(wanted[key]), limit=limit, total=len(wanted))

    @routes.get("/v1/devices/{device}/requests/{request_id}", responses=problems(404))
    async def one(device: DeviceName, request_id: RequestIdPath) -> RequestView:
        """Show one request."""
        return _view(desk.one(device, request_id))

    @routes.post(
        "/v1/devices/{device}/requests/{request_id}/reply",
        status_code=202,
        responses=problems(404, 409),
    )
    async def reply(
        device: DeviceName, request_id: RequestIdPath, body: ReplyBody, request: Request
    ) -> RequestView:
        """Answer a request.

        The device gets it once, also when it sleeps now. The same again changes nothing, another is
        refused.
        """
        by = request.state.holder.name
        return _view(
            await desk.reply(
                device, request_id, ReplyState(body.state), body.body, body.detail, by=by
            )
        )

    return routes
