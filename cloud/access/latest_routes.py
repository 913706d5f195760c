"""The route of the latest values: a snapshot that goes on as a stream."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from edgewake.cloud.access.latest_stores import LatestStores
from edgewake.cloud.log.catalogue import UnknownStream
from edgewake.cloud.web import Problem
from edgewake.cloud.web_openapi import problems

NO_STORE: Final = {"Cache-Control": "no-store"}


class LatestView(BaseModel):
    """A snapshot."""

    name: str
    left_out: int
    """Rows that were forgotten because there are too many."""
    cursor: str
    """Where the stream goes on behind exactly this: `last_event_id` of `/v1/streams/{name}/events`."""
    rows: list[dict[str, Any]]
    """The last reading of each device, or the newest window of each group."""


def router(stores: LatestStores) -> APIRouter:
    """Snapshots of streams and queries."""
    routes = APIRouter()

    @routes.get("/v1/latest/{name}", response_model=LatestView, responses=problems(404))
    async def latest(name: str) -> Response:
        """The last reading of each device, or the newest window of each group, of the last hour; its cursor goes on as a stream."""
        try:
            return Response(await stores.answer(name), media_type="application/json", headers=NO_STORE)
        except UnknownStream as error:
            raise Problem(404, "unknown_stream", str(error), near=error.near) from error

    return routes
