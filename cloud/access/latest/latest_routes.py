"""The route of the latest values: a snapshot that goes on as a stream."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel
from starlette.responses import Response

from edgewake.cloud.access.bounded.answer import is_known
from edgewake.cloud.access.bounded.bodies import BodyResponse, Taken
from edgewake.cloud.access.bounded.rows import Choice, choice
from edgewake.cloud.access.latest.latest_stores import LatestStores, Missing
from edgewake.cloud.client_share import Clients
from edgewake.cloud.log.catalogue import UnknownStream
from edgewake.cloud.log.filters.filter_syntax import Sets
from edgewake.cloud.log.named import UnknownPublication
from edgewake.cloud.log.request import RequestError
from edgewake.cloud.log.subscription import Published
from edgewake.cloud.rights.guard import ReaderAsks
from edgewake.cloud.rights.principal import Principal
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.errors import CursorError, FilterError

NO_STORE: Final[Mapping[str, str]] = {"Cache-Control": "no-store"}

Keys = Annotated[
    list[str] | None,
    Query(
        description="A device, or a group's values as a JSON list (one alone as it is); up to 100."
    ),
]
Where = Annotated[str | None, Query(description="SQL condition on the rows, as of streams.")]
Limit = Annotated[str | None, Query(description="A page in the order of keys: 1 to 10000 rows.")]
W = TypeVar("W")
After = Annotated[str | None, Query(description="`next` of the page before.")]
Sample = Annotated[
    str | None,
    Query(description="A share of all devices or groups, the same ones everywhere: 0.1 or 10%."),
]


@dataclass(frozen=True)
class Words:
    """The parameters of a snapshot, of a stream and of one of a publication."""

    key: Keys = None
    where: Where = None
    limit: Limit = None
    after: After = None
    sample: Sample = None

    def choice(self, sets: Sets | None, published: Published | None = None) -> Choice:
        """The rows that they ask for. Raises RequestError and FilterError."""
        words = (self.key or (), self.where, self.limit, self.after)
        return choice(*words, sets, published=published, sample=self.sample)


def asked_by(words: type[W]) -> Callable[..., Awaitable[W]]:
    """A dependency whose parameters are the fields of a dataclass."""

    async def found(**given: Any) -> W:
        return words(**given)  # FastAPI calls a class in another thread

    signature = inspect.signature(words, eval_str=True)
    found.__signature__ = signature  # type: ignore[attr-defined]  # FastAPI reads it
    return found


WordsAsked = Annotated[Words, Depends(asked_by(Words))]


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
    next: str | None = None
    """With `limit`: the `after` of the next page; null where this is the last."""
    rows: list[dict[str, Any]]
    """The last reading of each device, or the newest window of each group."""


def router(stores: LatestStores, clients: Clients) -> APIRouter:
    """Snapshots of streams and queries."""
    routes = APIRouter()

    @routes.get("/v1/latest/{name}", response_model=LatestView, responses=problems(400, 404, 422))
    async def latest(http: Request, name: str, reader: ReaderAsks, words: WordsAsked) -> Response:
        """The last reading of each device, or the newest window of each group.

        All of them, or those of a key, condition or page; the cursor continues as a stream.
        """
        with refusals():
            return await _answer(http, name, reader, words.choice(stores.sets))

    @routes.get(
        "/v1/publications/{publication}/latest/{name}",
        response_model=LatestView,
        responses=problems(400, 404, 422),
    )
    async def published(
        http: Request, publication: str, name: str, reader: ReaderAsks, words: WordsAsked
    ) -> Response:
        """The latest rows of a stream of a publication, as far as this shows them."""
        with refusals():
            found = await stores.published(publication, reader)
            return await _answer(http, name, reader, words.choice(stores.sets, found))

    async def _answer(http: Request, name: str, reader: Principal, asked: Choice) -> Response:
        client = clients.of_request(http)
        return answered(http, await stores.answer(name, client, reader, asked))

    return routes


def answered(http: Request, body: Taken) -> Response:
    """An answer that no cache keeps, and that has no tag."""
    if is_known(", ".join(http.headers.getlist("if-none-match"))):
        body.close()
        return Response(status_code=304, headers=NO_STORE)
    return BodyResponse(body, NO_STORE)


@contextmanager
def refusals() -> Iterator[None]:
    """Raise what is wrong with a request for the latest rows as the Problem to answer."""
    try:
        yield
    except FilterError as error:
        raise Problem(422, "filter", str(error)) from error
    except CursorError as error:
        raise Problem(400, f"cursor_{error.reason}", str(error)) from error
    except RequestError as error:
        raise Problem(400, error.code, str(error)) from error
    except UnknownStream as error:
        raise Problem(404, "unknown_stream", str(error), near=error.near) from error
    except UnknownPublication as error:
        raise Problem(404, "unknown_publication", str(error), near=error.near) from error
