"""The route of data sync: a copy of the latest rows that a client keeps up to date.

Without a cursor all rows come; with one what changed since, or all rows where that is less or where
it is not known any more. `wait` holds the answer back until something changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel
from starlette.responses import Response

from edgewake.cloud.access.bounded.answer import bounds_of
from edgewake.cloud.access.bounded.rows import Choice, choice
from edgewake.cloud.access.connection import connection_of
from edgewake.cloud.access.latest.latest_routes import (
    Keys,
    Sample,
    Where,
    answered,
    asked_by,
    refusals,
)
from edgewake.cloud.access.latest.latest_stores import FIRST_S, OLDER_S, LatestStores, Missing
from edgewake.cloud.access.open_streams import OpenStream, OpenStreams
from edgewake.cloud.client_share import Clients
from edgewake.cloud.log.filters.filter_syntax import Sets
from edgewake.cloud.log.request import RequestError
from edgewake.cloud.log.subscription import Published
from edgewake.cloud.rights.guard import ReaderAsks, ended
from edgewake.cloud.rights.principal import Principal
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.errors import Unavailable

T = TypeVar("T")

Limit = Annotated[
    str | None, Query(description="A snapshot in pages, in the order of keys: 1 to 10000 rows.")
]
Page = Annotated[str | None, Query(description="`next` of the page before.")]
After = Annotated[
    str | None,
    Query(
        description=(
            "The cursor that came with your copy: of the answer before, or of a snapshot's first "
            "page."
        )
    ),
]
Wait = Annotated[
    str | None, Query(description="With `after`: seconds to wait for a change, 0 (default) to 60.")
]


@dataclass(frozen=True)
class Words:
    """The parameters of a copy, of a stream and of one of a publication."""

    after: After = None
    wait: Wait = None
    key: Keys = None
    where: Where = None
    limit: Limit = None
    page: Page = None
    sample: Sample = None

    def choice(self, sets: Sets | None, published: Published | None = None) -> Choice:
        """The rows that they ask for. Raises RequestError and FilterError."""
        words = (self.key or (), self.where, self.limit, self.page)
        return choice(*words, sets, published=published, sample=self.sample)


WordsAsked = Annotated[Words, Depends(asked_by(Words))]


class KeyedRow(BaseModel):
    """A row of a snapshot."""

    key: str
    """A device, or the JSON list of a group's values."""
    row: dict[str, Any]


class ChangeView(BaseModel):
    """What became of a row."""

    op: Literal["insert", "update", "delete"]
    key: str
    row: dict[str, Any] | None = None
    """The row as it is now; absent for a row that was deleted."""


class SyncView(BaseModel):
    """A snapshot, or what changed since a cursor."""

    name: str
    kind: Literal["snapshot", "changes"]
    complete: bool
    missing: list[Missing]
    """Why rows are missing, as of `/v1/latest`."""
    cursor: str
    """Behind exactly this; for `after`, and for every other way to read."""
    next: str | None
    """With `limit`: the `page` of the next one; null where this is the last."""
    changes: list[ChangeView]
    """Each key once: from what it was at your cursor to what it is now."""
    rows: list[KeyedRow]
    """All rows of a snapshot: they take the place of your copy."""


def router(stores: LatestStores, streams: OpenStreams, clients: Clients) -> APIRouter:
    """Copies of the latest rows."""
    routes = APIRouter()

    @routes.get("/v1/sync/{name}", response_model=SyncView, responses=problems(400, 404, 422))
    async def sync(http: Request, name: str, reader: ReaderAsks, words: WordsAsked) -> Response:
        """All latest rows, and then what changed in them: insert, update, delete."""
        with refusals():
            return await _answer(http, name, reader, words, words.choice(stores.sets))

    @routes.get(
        "/v1/publications/{publication}/sync/{name}",
        response_model=SyncView,
        responses=problems(400, 404, 422),
    )
    async def published(
        http: Request, publication: str, name: str, reader: ReaderAsks, words: WordsAsked
    ) -> Response:
        """All latest rows of a stream of a publication, and then what changed in them."""
        with refusals():
            found = await stores.published(publication, reader)
            return await _answer(http, name, reader, words, words.choice(stores.sets, found))

    async def _answer(
        http: Request, name: str, reader: Principal, words: Words, asked: Choice
    ) -> Response:
        after = words.after
        if after is not None and (asked.limit is not None or asked.after is not None):
            raise RequestError("after", "after: expected without limit and page")
        wait_s = bounds_of(None, words.wait).wait_s if after is not None else 0.0
        client = clients.of_request(http)
        stream = streams.add(
            connection_of(http.scope), client=client, reader=reader, heartbeat_s=None
        )
        work = stores.synchronised(name, client, reader, asked, cursor=after, wait_s=wait_s)
        body = await _while_there(stream, work, wait_s + FIRST_S + OLDER_S)
        if body is None:
            return Response(status_code=204)  # nobody is there to read it
        return answered(http, body)

    return routes


async def _while_there(
    stream: OpenStream, work: Coroutine[Any, Any, T], within_s: float
) -> T | None:
    """Work for a client while it is connected and may read; None where it has hung up.

    Raises Problem where its right ended meanwhile, and Unavailable.
    """
    working = asyncio.create_task(work)

    def stop() -> None:
        working.cancel()

    stream.call_at_end(stop)
    try:
        waited: set[asyncio.Future[Any]] = {working, stream.lost}
        await asyncio.wait(waited, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        if stream.why_ended is not None:
            raise ended(stream.why_ended)
        if stream.lost.done():
            return None
        if not working.done() or working.cancelled():
            raise Unavailable("this server stops, or Kafka does not answer; come again")
        return working.result()
    finally:
        working.cancel()
        await asyncio.wait({working})
        stream.close()
