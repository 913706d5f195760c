"""The route of the search field in the page header."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nsmallest
from typing import Annotated, Final, Literal, TypeAlias

from fastapi import APIRouter, Query
from pydantic import BaseModel

from edgewake.cloud.ops.routes.shared import Services

FOUND_MAX: Final = 8
"""The most names of each kind in an answer, as many as fit under the field."""
Kind: TypeAlias = Literal["device", "stream", "query", "board", "alert"]


class Found(BaseModel):
    """A match of the search."""

    kind: Kind
    name: str
    title: str
    """The title of a board; empty for other kinds."""


class FoundAll(BaseModel):
    """Matches: names that begin with the text come first, then names that contain it."""

    items: list[Found]


def best(names: Iterable[str], part: str) -> list[str]:
    """Returns names that contain `part`, case-insensitive: first those that begin with it."""
    folded = part.casefold()
    ranked = ((name.casefold().find(folded), name) for name in names)
    keys = ((at > 0, name) for at, name in ranked if at >= 0)
    return [name for _, name in nsmallest(FOUND_MAX, keys)]


def router(services: Services) -> APIRouter:
    """Makes the route of the search."""
    routes = APIRouter(tags=["overview"])
    tables = services.tables

    def found(part: str) -> Iterator[Found]:
        kinds: dict[Kind, Iterable[str]] = {
            "device": tables.devices.names(),
            "stream": tables.streams,
            "query": tables.queries,
            "alert": tables.alerts.rules,
        }
        for kind, names in kinds.items():
            for name in best(names, part):
                yield Found(kind=kind, name=name, title="")
        of_boards = {f"{name} {board.title}": name for name, board in tables.boards.items()}
        for text in best(of_boards, part):
            name = of_boards[text]
            yield Found(kind="board", name=name, title=tables.boards[name].title)

    @routes.get("/v1/search")
    async def search(q: Annotated[str, Query(min_length=1, max_length=64)]) -> FoundAll:
        """Find devices, streams, queries, boards and alert rules by any part of their names."""
        return FoundAll(items=list(found(q)))

    return routes
