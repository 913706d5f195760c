"""The route of the latest values: a snapshot that goes on as a stream."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from edgewake.cloud.access.latest_stores import LatestStores, Missing
from edgewake.cloud.client_share import Clients
from edgewake.cloud.log.catalogue import UnknownStream
from edgewake.cloud.rights.guard import ReaderAsks
from edgewake.cloud.web import Problem
from edgewake.cloud.web_openapi import problems

NO_STORE: Final = {"Cache-Control": "no-store"}


class LatestView(BaseModel):
    """A snapshot."""

    name: str
    complete: bool
    """Are these all rows there are?"""
    missing: list[Missing]
    """Why rows are missing: reading (older records are still being read: ask again), records
    (records as old as that are not read), retention (what came before is no longer kept), bytes
    (`left_out` rows were dropped)."""
    left_out: int
    """Rows that were dropped because there are too many; those that were heard of least lately go
    first."""
    cursor: str
    """Where the stream goes on behind exactly this: `last_event_id` of
    `/v1/streams/{name}/events`."""
    rows: list[dict[str, Any]]
    """The last reading of each device, or the newest window of each group."""


def router(stores: LatestStores, clients: Clients) -> APIRouter:
    """Snapshots of streams and queries."""
    routes = APIRouter()

    @routes.get("/v1/latest/{name}", response_model=LatestView, responses=problems(404))
    async def latest(http: Request, name: str, reader: ReaderAsks) -> Response:
        """The last reading of each device, or the newest window of each group; its cursor goes on
        as a stream.
        """
        client = clients.of_request(http)
        try:
            return Response(
                await stores.answer(name, client, reader),
                media_type="application/json",
                headers=NO_STORE,
            )
        except UnknownStream as error:
            raise Problem(404, "unknown_stream", str(error), near=error.near) from error

    return routes
