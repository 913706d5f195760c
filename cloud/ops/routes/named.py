"""Routes about named sets and publications."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from edgewake.cloud.ops.routes.shared import (
    PAGE_DEFAULT,
    After,
    Limit,
    Page,
    Services,
    names_after,
    page_of,
)
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.names import STREAM_PATTERN
from edgewake.protocol.ops.named_set import MEMBERS_MAX, Member, NamedSet, SetText
from edgewake.protocol.ops.publication import Publication, PublicationText

Name = Annotated[str, Path(pattern=f"^{STREAM_PATTERN.pattern}$")]
Version = Annotated[int | None, Query(ge=0, le=2**53)]


class SetView(BaseModel):
    """A set in a list."""

    name: str
    description: str
    members: int
    version: int
    changed_at: int
    changed_by: str


class SetChange(BaseModel):
    """Members to add and to remove."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    add: Annotated[tuple[Member, ...], Field(max_length=MEMBERS_MAX)] = ()
    remove: Annotated[tuple[Member, ...], Field(max_length=MEMBERS_MAX)] = ()


def router(services: Services) -> APIRouter:
    """Makes the routes about named sets and publications."""
    routes = APIRouter(tags=["named"])
    sets, publications = services.tables.sets, services.tables.publications
    desk = services.named

    @routes.get("/v1/sets")
    async def all_sets(limit: Limit = PAGE_DEFAULT, after: After = None) -> Page[SetView]:
        """List named sets by name."""
        return page_of(
            names_after(sets, after), lambda name: _view(sets[name]), limit=limit, total=len(sets)
        )

    @routes.get("/v1/sets/{name}", responses=problems(404))
    async def one_set(name: Name) -> NamedSet:
        """Show a set with its members."""
        return desk.named_set(name)

    @routes.put("/v1/sets/{name}", responses=problems(409))
    async def put_set(
        name: Name, body: SetText, request: Request, version: Version = None
    ) -> SetView:
        """Store a set of up to 10,000 members; open streams follow it within two seconds.

        `version` is the one that you changed; 409 where a newer one exists.
        """
        by = request.state.holder.name
        return _view(await desk.put_set(name, body, version=version, by=by))

    @routes.patch("/v1/sets/{name}", responses=problems(404, 409))
    async def change_set(name: Name, body: SetChange, request: Request) -> SetView:
        """Add members to a set, and remove others."""
        by = request.state.holder.name
        return _view(await desk.change_set(name, body.add, body.remove, by=by))

    @routes.delete("/v1/sets/{name}", status_code=204, responses=problems(404))
    async def remove_set(name: Name) -> None:
        """Remove a set; filters that use it then match nothing."""
        await desk.remove_set(name)

    @routes.get("/v1/publications")
    async def all_publications(
        limit: Limit = PAGE_DEFAULT, after: After = None
    ) -> Page[Publication]:
        """List publications by name."""
        return page_of(
            names_after(publications, after),
            lambda name: publications[name],
            limit=limit,
            total=len(publications),
        )

    @routes.get("/v1/publications/{name}", responses=problems(404))
    async def one_publication(name: Name) -> Publication:
        """Show a publication."""
        return desk.publication(name)

    @routes.put("/v1/publications/{name}", responses=problems(409))
    async def put_publication(
        name: Name, body: PublicationText, request: Request, version: Version = None
    ) -> Publication:
        """Store streams, a filter, fields and limits under this name.

        Readers of the publication are disconnected; they reconnect to the new one with their
        cursors.
        """
        by = request.state.holder.name
        return await desk.put_publication(name, body, version=version, by=by)

    @routes.delete("/v1/publications/{name}", status_code=204, responses=problems(404))
    async def remove_publication(name: Name) -> None:
        """Remove a publication and disconnect its readers."""
        await desk.remove_publication(name)

    return routes


def _view(found: NamedSet) -> SetView:
    facts = found.model_dump(include=set(SetView.model_fields) - {"members"})
    return SetView(**facts, members=len(found.members))
