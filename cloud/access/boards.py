"""Boards as readers see them: the cards that show what they may read, and no word of others.

A board is there for who may read what one of its cards shows; its texts and its title come with it.
A card of a device or a field that is hidden from a reader is left out, like one of a stream that
is; so is a chart of several where one is. What the cards show is read as any stream is, so a board
gives nobody a right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel
from starlette.responses import Response

from edgewake.cloud.log.catalogue import Catalogue
from edgewake.cloud.rights.guard import ReaderAsks
from edgewake.cloud.rights.principal import Action, Principal
from edgewake.cloud.rights.scope import Scope
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.names import STREAM_PATTERN
from edgewake.protocol.ops.board import MEMBERS_MAX, Board, Card

BoardName = Annotated[str, Path(pattern=f"^{STREAM_PATTERN.pattern}$")]


class BoardLine(BaseModel):
    """A board in a list, as its reader sees it."""

    name: str
    title: str
    cards: int


class BoardLines(BaseModel):
    """Those that a reader sees, by name."""

    boards: list[BoardLine]


class CardSeen(Card):
    """A card as its reader sees it."""

    members: tuple[str, ...] | None = None
    """The devices of its group that its reader may see; None: it shows no group."""


class BoardSeen(BaseModel):
    """A board as its reader sees it."""

    name: str
    title: str
    version: int
    cards: tuple[CardSeen, ...]


Groups = Callable[[str], Sequence[str]]
"""The devices in a group, by name."""
_Members = Callable[[str, Scope | None], tuple[str, ...]]
"""The devices of a group that are seen with such a scope, at most MEMBERS_MAX."""


def seen_by(reader: Principal, board: Board, groups: Groups) -> BoardSeen | None:
    """What a reader sees of a board; None: not that there is one."""
    cards = _cards(reader, board, _members_of(groups))
    if not cards:
        return None
    seen = tuple(CardSeen(**card.model_dump(), members=members) for card, members in cards)
    return BoardSeen(name=board.name, title=board.title, version=board.version, cards=seen)


def lines_for(reader: Principal, boards: Mapping[str, Board], groups: Groups) -> list[BoardLine]:
    """The boards that a reader sees, by name; each group is looked through once for a scope."""
    members = _members_of(groups)
    found = (
        BoardLine(name=name, title=board.title, cards=len(_cards(reader, board, members)))
        for name, board in sorted(boards.items())
    )
    return [line for line in found if line.cards]


def _cards(
    reader: Principal, board: Board, members_of: _Members
) -> list[tuple[Card, tuple[str, ...] | None]]:
    """The cards that a reader sees, with the devices of their groups; none: he sees no board."""
    found: list[tuple[Card, tuple[str, ...] | None]] = []
    for card in board.cards:
        if not _may_see(reader, card):
            continue
        if card.group is None or card.source is None:
            found.append((card, None))
            continue
        scope = reader.scope(Action.READ, card.source)
        members = members_of(card.group, scope)
        if members or scope is None:
            found.append((card, members))
    return found if any(card.source is not None for card, _ in found) else []


def _members_of(groups: Groups) -> _Members:
    """For one request: what was found of a group with a scope is kept."""

    @cache
    def members(group: str, scope: Scope | None) -> tuple[str, ...]:
        found: Iterable[str] = groups(group)
        named = None if scope is None else scope.named_devices
        if named is not None:
            found = sorted(named.intersection(found))
        elif scope is not None:
            found = filter(scope.sees, found)
        return tuple(islice(found, MEMBERS_MAX))

    return members


def _may_see(reader: Principal, card: Card) -> bool:
    if card.source is None:
        return True
    if not reader.may(Action.READ, card.source):
        return False
    scope = reader.scope(Action.READ, card.source)
    if scope is None:
        return True
    devices = card.devices if card.device is None else (card.device,)
    fields = card.fields if card.field is None else (card.field, *card.fields)
    return all(map(scope.sees, devices)) and all(map(scope.shows_field, fields))


def router(catalogue: Catalogue) -> APIRouter:
    """Boards for who only looks; they are made at the operations API."""
    routes = APIRouter()

    def kept() -> Mapping[str, Board]:
        if why := catalogue.why_unreachable:
            raise Unavailable(why)
        return {} if catalogue.named is None else catalogue.named.boards

    def members(group: str) -> Sequence[str]:
        return () if catalogue.named is None else catalogue.named.in_group(group)

    @routes.get("/v1/boards", responses=problems(503))
    async def boards(reader: ReaderAsks, response: Response) -> BoardLines:
        """Lists the boards that show something that you may read."""
        response.headers["Cache-Control"] = "no-store"
        return BoardLines(boards=lines_for(reader, kept(), members))

    @routes.get("/v1/boards/{name}", responses=problems(404, 503))
    async def board(name: BoardName, reader: ReaderAsks, response: Response) -> BoardSeen:
        """One board, with the cards that show what you may read."""
        response.headers["Cache-Control"] = "no-store"
        found = kept().get(name)
        seen = None if found is None else seen_by(reader, found, members)
        if seen is None:
            raise Problem(
                404, "no_such_board", f"unknown board {name!r}; GET /v1/boards lists yours"
            )
        return seen

    return routes
