"""Boards as readers see them: the cards that show what they may read, and no word of others.

A board is there for who may read what one of its cards shows; its texts and its title come with it.
A card of a device or a field that is hidden from a reader is left out, like one of a stream that
is. What the cards show is read as any stream is, so a board gives nobody a right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel
from starlette.responses import Response

from edgewake.cloud.log.catalogue import Catalogue
from edgewake.cloud.rights.guard import ReaderAsks
from edgewake.cloud.rights.principal import Action, Principal
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


def seen_by(reader: Principal, board: Board, groups: Groups) -> BoardSeen | None:
    """What a reader sees of a board; None: not that there is one."""
    seen = (_seen(reader, card, groups) for card in board.cards if _may_see(reader, card))
    cards = tuple(card for card in seen if card is not None)
    if all(card.source is None for card in cards):
        return None
    return BoardSeen(name=board.name, title=board.title, version=board.version, cards=cards)


def _may_see(reader: Principal, card: Card) -> bool:
    if card.source is None:
        return True
    if not reader.may(Action.READ, card.source):
        return False
    scope = reader.scope(Action.READ, card.source)
    if scope is None:
        return True
    is_device_seen = card.device is None or scope.sees(card.device)
    return is_device_seen and (card.field is None or scope.shows_field(card.field))


def _seen(reader: Principal, card: Card, groups: Groups) -> CardSeen | None:
    """None: it shows a group of which they may see no device."""
    if card.group is None or card.source is None:
        return CardSeen(**card.model_dump())
    scope = reader.scope(Action.READ, card.source)
    found = (one for one in groups(card.group) if scope is None or scope.sees(one))
    members = tuple(islice(found, MEMBERS_MAX))
    if scope is not None and not members:
        return None
    return CardSeen(**card.model_dump(), members=members)


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
        found = (seen_by(reader, board, members) for _, board in sorted(kept().items()))
        lines = [
            BoardLine(name=one.name, title=one.title, cards=len(one.cards))
            for one in found
            if one is not None
        ]
        return BoardLines(boards=lines)

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
