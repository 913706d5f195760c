"""Routes about the maps that all bridges use."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel

from edgewake.cloud.ops.routes.shared import Services
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.ops.pushed_maps import MapsText, PushedMaps

VERSION_MAX: Final = 2**53
"""The largest version that may be asked for: JSON's numbers are exact up to it."""
Version = Annotated[int, Path(ge=1, le=VERSION_MAX)]
MadeOf = Annotated[int | None, Query(ge=0, le=VERSION_MAX)]


class MapsView(BaseModel):
    """A version in a list."""

    version: int
    description: str
    bytes: int
    """0: no maps."""
    changed_at: int
    changed_by: str
    in_use: bool


class MapsList(BaseModel):
    """The versions that are kept, the newest first."""

    items: list[MapsView]


def router(services: Services) -> APIRouter:
    """Makes the routes about maps."""
    routes = APIRouter(tags=["maps"])
    desk = services.maps

    @routes.get("/v1/maps")
    async def all_versions() -> MapsList:
        """List the last twenty versions of the maps that all bridges use, the newest first."""
        kept = desk.versions()
        return MapsList(items=[_view(one, in_use=one is kept[0]) for one in kept])

    @routes.get("/v1/maps/{version}", responses=problems(404))
    async def one_version(version: Version) -> PushedMaps:
        """Show a version with its text."""
        return desk.version(version)

    @routes.put("/v1/maps", responses=problems(409, 422))
    async def push(body: MapsText, request: Request, version: MadeOf = None) -> MapsView:
        """Give all bridges a map file, as the next version; within a second it is in use.

        It is compiled first: 422 says with line and key what no bridge could use. `version` is the
        one that yours was made of; 409 where a newer one exists. To go back, send the text of an
        old version; an empty text takes the maps away.
        """
        by = request.state.holder.name
        return _view(await desk.push(body, version=version, by=by), in_use=True)

    return routes


def _view(found: PushedMaps, *, in_use: bool) -> MapsView:
    facts = found.model_dump(include=set(MapsView.model_fields) - {"bytes", "in_use"})
    return MapsView(**facts, bytes=len(found.text.encode()), in_use=in_use)
