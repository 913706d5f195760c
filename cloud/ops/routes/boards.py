"""Routes about boards, and about the events that their cards show."""

from __future__ import annotations

from typing import Annotated, Final

from confluent_kafka import Message
from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel

from edgewake.cloud.ops.lookups import recent
from edgewake.cloud.ops.lookups.recent import PLACE_CHARS_MAX, Recent
from edgewake.cloud.ops.routes.shared import (
    PAGE_DEFAULT,
    After,
    Limit,
    Page,
    Services,
    names_after,
    page_of,
)
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol import topics
from edgewake.protocol.errors import FilterError
from edgewake.protocol.names import DEVICE_PATTERN, STREAM_PATTERN, SYSTEM_STREAMS
from edgewake.protocol.ops.board import Board, BoardText

SOURCES_MAX: Final = 16
"""The most streams and queries of one request."""
FILTER_CHARS_MAX: Final = 4_096
"""The most characters of a filter, or of columns; the head of a request has room for both."""
BoardName = Annotated[str, Path(pattern=f"^{STREAM_PATTERN.pattern}$")]
DeviceAsked = Annotated[str | None, Query(pattern=f"^{DEVICE_PATTERN.pattern}$")]
FilterAsked = Annotated[str | None, Query(max_length=FILTER_CHARS_MAX)]
SourceName = Annotated[str, Query(pattern=f"^{STREAM_PATTERN.pattern}$")]


class BoardView(BaseModel):
    """A board in a list."""

    name: str
    title: str
    cards: int
    version: int
    changed_at: int
    changed_by: str


class BoardShown(Board):
    """A board, and its addresses for readers."""

    read_at: list[str]
    """Its addresses at the access servers; readers see the cards that their grants allow."""


def router(services: Services) -> APIRouter:
    """Makes the routes about boards and recent events."""
    routes = APIRouter(tags=["boards"])
    boards, desk = services.tables.boards, services.boards
    known = recent.KnownSets(services.tables.sets)

    @routes.get("/v1/boards")
    async def all_boards(limit: Limit = PAGE_DEFAULT, after: After = None) -> Page[BoardView]:
        """List boards by name."""
        return page_of(
            names_after(boards, after),
            lambda name: _view(boards[name]),
            limit=limit,
            total=len(boards),
        )

    @routes.get("/v1/boards/{name}", responses=problems(404))
    async def board(name: BoardName) -> BoardShown:
        """Show a board with its cards."""
        read_at = [f"{url.rstrip('/')}/#/boards/{name}" for url in services.access_urls]
        return BoardShown(**desk.get(name).model_dump(), read_at=read_at)

    @routes.put("/v1/boards/{name}", responses=problems(409))
    async def put(
        name: BoardName,
        body: BoardText,
        request: Request,
        version: Annotated[int | None, Query(ge=0, le=2**53)] = None,
    ) -> Board:
        """Store a board under this name. An identical board changes nothing.

        `version` is the one that you changed; 409 where a newer one exists.
        """
        return await desk.put(name, body, version=version, by=request.state.holder.name)

    @routes.delete("/v1/boards/{name}", status_code=204, responses=problems(404))
    async def remove(name: BoardName) -> None:
        """Remove a board; the data that it shows stays."""
        await desk.remove(name)

    @routes.get("/v1/recent")
    async def came(
        source: Annotated[list[SourceName], Query(min_length=1, max_length=SOURCES_MAX)],
        after: Annotated[str | None, Query(max_length=PLACE_CHARS_MAX)] = None,
        minutes: Annotated[int, Query(ge=1, le=60)] = 15,
        device: DeviceAsked = None,
        where: FilterAsked = None,
        select: FilterAsked = None,
    ) -> Recent:
        """Return recent readings of streams and rows of queries.

        The answer covers the last `minutes`, or all since `after`; with `device` only what it sent.
        `where` and `select` are those of the access servers; 422 says what is wrong in them.
        """
        try:
            wanted_events = recent.shown(where, select, known)
        except FilterError as error:
            raise Problem(422, "filter", str(error)) from error
        try:
            places = {} if after is None else recent.decode(after)
        except ValueError as error:
            raise Problem(422, "place", str(error)) from error
        topics = {name: _topic_of(services, name) for name in source}
        wanted = {topic: name for name, topic in topics.items() if topic}
        begin = services.clock.now_ms() - minutes * 60_000
        return await services.lookup.run(
            lambda session: _answer(
                *recent.read(session, wanted, places, begin=begin, device=device), wanted_events
            )
        )

    return routes


def _answer(
    found: list[tuple[str, Message]],
    places: recent.Places,
    is_cut: bool,
    wanted: recent.Shown,
) -> Recent:
    events, too_many = recent.events_of(found, wanted)
    return Recent(events=events, place=recent.encode(places), is_cut=is_cut or too_many)


def _view(board: Board) -> BoardView:
    facts = board.model_dump(include=set(BoardView.model_fields) - {"cards"})
    return BoardView(**facts, cards=len(board.cards))


def _topic_of(services: Services, name: str) -> str | None:
    tables = services.tables
    if name in tables.streams or name in SYSTEM_STREAMS:
        return topics.stream_topic(name)
    query = tables.queries.get(name)
    return None if query is None else query.topic
