"""The route of the search in the top line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nsmallest
from typing import Annotated, Final, Literal, TypeAlias

from fastapi import APIRouter, Query
from pydantic import BaseModel

from edgewake.cloud.ops.routes.shared import Services

FOUND_MAX: Final = 8
"""Names of each kind in an answer: what fits under the field; more letters find fewer."""
Kind: TypeAlias = Literal["device", "stream", "query", "board", "alert"]


class Found(BaseModel):
    """Something of this name."""

    kind: Kind
    name: str
    title: str
    """What a board is called; else empty."""


class FoundAll(BaseModel):
    """Names that begin so come first, then those that hold it."""

    items: list[Found]


def best(names: Iterable[str], part: str) -> list[str]:
    """The names that hold a part, in any case: those that begin with it first, then by name."""
    folded = part.casefold()
    ranked = ((name.casefold().find(folded), name) for name in names)
    keys = ((at > 0, name) for at, name in ranked if at >= 0)
    return [name for _, name in nsmallest(FOUND_MAX, keys)]


def router(services: Services) -> APIRouter:
    """Find by name."""
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
        """Devices, streams, queries, boards and rules of alerts by any part of their names."""
        return FoundAll(items=list(found(q)))

    return routes
