"""The routes of shared consumers, on the push proxy: any proxy may be asked."""

from __future__ import annotations

from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, FastAPI, Path, Request, Response
from pydantic import BaseModel

from edgewake.cloud.client_share import Clients
from edgewake.cloud.push.groups.groups import GroupDiffers, Groups, NoSuchGroup, TooManyGroups
from edgewake.cloud.push.groups.sharing import Sharing, Taken
from edgewake.cloud.rights.guard import ReaderAsks, ended
from edgewake.cloud.rights.rights import Rights
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.leases.delivery import NAME_PATTERN
from edgewake.protocol.leases.group import Ack, GroupRequest, Take

NO_STORE: Final = {"Cache-Control": "no-store"}
Name = Annotated[str, Path(pattern=NAME_PATTERN)]


class OldestView(BaseModel):
    """The oldest event of a group that is not done."""

    token: str
    """The token to acknowledge it with, whoever had it."""
    count: int
    """How often it was given."""


class GroupView(BaseModel):
    """A group as its clients see it. Times are ms since 1970 UTC."""

    name: str
    streams: tuple[str, ...]
    where: str | None
    select: str | None
    publication: str | None
    devices: tuple[str, ...] | None
    sample: float | None
    cursor: str
    """Everything before it is done."""
    held: int
    """Events that somebody has."""
    waiting: int
    """Clients that wait for events."""
    events: int
    """Events that are done, all together."""
    oldest: OldestView | None
    """The oldest event that is not done: where its count grows, it holds the group up. Null: all
    that was read is done, or nobody has asked for events for a while."""
    trouble: str
    """What keeps it from reading at the moment."""
    created_at: int


class TakenEvent(BaseModel):
    """An event that is yours until its time is over."""

    token: str
    """The token to acknowledge it with."""
    count: int
    """How often it was given, this time included."""
    event: Any


class TakenView(BaseModel):
    """The answer to a take."""

    events: list[TakenEvent]
    gaps: list[Any]
    """Lost ranges of the streams, reported once."""


class AckView(BaseModel):
    """The answer to an acknowledgement."""

    done: int
    """How many of the named ones were not done before."""
    released: int


def add_to(app: FastAPI, groups: Groups, clients: Clients, rights: Rights) -> None:
    """Serve them."""
    app.include_router(_router(groups, clients, rights))

    @app.exception_handler(NoSuchGroup)
    async def no_such(_: Request, error: NoSuchGroup) -> Response:
        return Problem(404, "no_such_group", str(error)).response()

    @app.exception_handler(GroupDiffers)
    async def differs(_: Request, error: GroupDiffers) -> Response:
        return Problem(409, "group_differs", str(error)).response()

    @app.exception_handler(TooManyGroups)
    async def too_many(_: Request, error: TooManyGroups) -> Response:
        headers = {"Retry-After": "60"}
        return Problem(429, "too_many_groups", str(error), headers=headers).response()


def _router(groups: Groups, clients: Clients, rights: Rights) -> APIRouter:
    routes = APIRouter()

    @routes.put(
        "/v1/groups/{name}",
        responses={201: {"model": GroupView, "description": "A new one."}, **problems(409, 422)},
    )
    async def put(
        http: Request, name: Name, body: GroupRequest, response: Response, reader: ReaderAsks
    ) -> GroupView:
        """Make a group, unless there is one like it: each of its clients may ask for it."""
        sharing, is_new = await groups.put(name, body, reader, clients.of_request(http))
        response.status_code = 201 if is_new else 200
        return _view(sharing)

    @routes.get("/v1/groups")
    async def listed(http: Request, reader: ReaderAsks) -> dict[str, list[GroupView]]:
        """Your groups."""
        return {"groups": [_view(one) for one in groups.listed(reader, clients.of_request(http))]}

    @routes.get("/v1/groups/{name}", responses=problems(404))
    async def one(http: Request, name: Name, reader: ReaderAsks) -> GroupView:
        """One of them, as it stands."""
        return _view(groups.get(name, reader, clients.of_request(http)))

    @routes.delete("/v1/groups/{name}", status_code=204, responses=problems(404))
    async def remove(http: Request, name: Name, reader: ReaderAsks) -> None:
        """Forget a group, and what it did."""
        await groups.remove(name, reader, clients.of_request(http))

    @routes.post("/v1/groups/{name}/take", response_model=TakenView, responses=problems(404, 429))
    async def take(http: Request, name: Name, body: Take, reader: ReaderAsks) -> Response:
        """Events that nobody else has: acknowledge each, or it is given to another one.

        When this is answered it is stored who has them.
        """
        client = clients.of_request(http)

        async def is_there() -> bool:
            why = rights.end_of(reader)
            if why is not None:  # while the client waited
                held = rights.holder(reader.proof)
                if held is None:
                    raise ended(why)
                groups.get(name, held, client)  # another right now, which may show all the same
            return not await http.is_disconnected()

        taken = await groups.take(name, body, reader, client, is_there)
        return Response(_body(taken), media_type="application/json", headers=NO_STORE)

    @routes.post("/v1/groups/{name}/ack", responses=problems(404))
    async def acknowledge(http: Request, name: Name, body: Ack, reader: ReaderAsks) -> AckView:
        """Say what is done, and what another one is to do. When this is answered it is stored."""
        done, released = await groups.acknowledge(name, body, reader, clients.of_request(http))
        return AckView(done=done, released=released)

    return routes


def _view(sharing: Sharing) -> GroupView:
    stored, oldest = sharing.group, sharing.oldest
    return GroupView(
        name=stored.name,
        streams=stored.streams,
        where=stored.where,
        select=stored.select,
        publication=stored.publication,
        devices=stored.devices,
        sample=stored.sample,
        cursor=stored.cursor,
        held=sharing.held,
        waiting=sharing.waiting,
        events=stored.events,
        oldest=None if oldest is None else OldestView(token=oldest[0], count=oldest[1]),
        trouble=sharing.trouble,
        created_at=stored.created_at,
    )


def _body(taken: Taken) -> bytes:
    """The events are JSON already."""
    events = [
        b'{"token":%b,"count":%d,"event":%b}' % (orjson.dumps(one.token), one.count, one.event)
        for one in taken.events
    ]
    return b'{"events":[%b],"gaps":[%b]}' % (b",".join(events), b",".join(taken.gaps))
