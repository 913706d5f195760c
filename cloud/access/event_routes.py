"""The routes of events: streams without end, and pages of them.

Failures that a retry can cure are 503 with Retry-After; a browser's EventSource (it sends
Sec-Fetch-Mode) gets 200 with `retry` and the end instead, because any other status stops it
permanently (WHATWG HTML 9.2.2).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, TypeVar

from fastapi import FastAPI, Query, Request
from starlette.responses import Response

from edgewake.cloud.access.bounded import answer
from edgewake.cloud.access.bounded.answer import Bounds, Form
from edgewake.cloud.access.bounded.bodies import Bodies
from edgewake.cloud.access.bounded.pages import Pages
from edgewake.cloud.access.connection import connection_of
from edgewake.cloud.access.event_route import EventRoute
from edgewake.cloud.access.event_words import Asked, AskedOfSeveral, Words, WordsAsked
from edgewake.cloud.access.metrics import Metrics
from edgewake.cloud.access.open_streams import OPEN_S, OpenStream, OpenStreams
from edgewake.cloud.access.reports.lease_reports import LeaseReport, LeaseReports
from edgewake.cloud.access.session import Session
from edgewake.cloud.access.slow.policy import Wish
from edgewake.cloud.access.stream_response import EventStream, Later, Opened
from edgewake.cloud.client_share import Clients
from edgewake.cloud.log import request as asked_for
from edgewake.cloud.log import subscription
from edgewake.cloud.log.catalogue import UnknownStream
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.hub_bounds import Full
from edgewake.cloud.log.named import UnknownPublication
from edgewake.cloud.log.request import LogEnd, RequestError
from edgewake.cloud.log.subscription import SubscriptionTooLarge
from edgewake.cloud.rights.guard import ReaderAsks, ended
from edgewake.cloud.rights.principal import Principal, holder
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import CursorError, FilterError, Unavailable
from edgewake.protocol.leases.lease_read import parse_name
from edgewake.protocol.names import is_stream
from edgewake.protocol.ops.proof import Kind

log = logging.getLogger("edgewake.access")

REFUSED: Final = (
    RequestError,
    FilterError,
    CursorError,
    UnknownStream,
    UnknownPublication,
    Unavailable,
)
LATER: Final = 2
"""The factor by which a refused browser waits longer than after a lost connection."""
ALLOW: Final = {"Allow": "GET, HEAD, POST, OPTIONS"}
SSE_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "content": {"text/event-stream": {}, **{form.value: {} for form in Form}},
        "description": "Events without end. `id` is the cursor; named events: `gap`, `watermark`, "
        "`checkpoint`, `warning`, `behind`, `conflated`, `heartbeat`, "
        "`problem`, `end`. With `limit`, `wait` or `after`, or where JSON is accepted: a page of "
        "events, "
        "its cursor, and whether it is live (of CSV in the headers `Edgewake-Cursor` and "
        "`Edgewake-Live`).",
    },
    304: {"description": "A page: nothing came since the answer with this ETag."},
    **problems(400, 404, 422),
}

T = TypeVar("T")


class EventRoutes:
    """The event streams of one server."""

    def __init__(
        self,
        *,
        hub: Hub,
        streams: OpenStreams,
        leases: LeaseReports,
        metrics: Metrics,
        clients: Clients,
        clock: Clock,
        bodies: Bodies,
    ) -> None:
        self._bodies = bodies
        self._hub, self._streams, self._leases, self._metrics, self._clock = (
            hub,
            streams,
            leases,
            metrics,
            clock,
        )
        self._clients = clients
        self._pages = Pages(hub, streams, leases, clock)

    def add_to(self, app: FastAPI) -> None:
        """Serve them."""
        # FastAPI looks for the status in the arguments of the class, where it is not, and would
        # fail to make the document.
        shown: Mapping[str, Any] = {
            "response_class": EventStream,
            "status_code": 200,
            "responses": SSE_ANSWERS,
        }
        for path, read, posted in (
            ("/v1/streams/{name}/events", self.one, self.one_posted),
            ("/v1/events", self.several, self.several_posted),
            ("/v1/publications/{name}/events", self.published, self.published_posted),
        ):
            app.router.add_api_route(
                path, read, methods=["GET"], route_class_override=EventRoute, **shown
            )
            app.add_api_route(path, posted, methods=["POST"], **shown)
            app.add_api_route(path, read, methods=["HEAD"], include_in_schema=False)
            app.add_route(path, _options, methods=["OPTIONS"], include_in_schema=False)
            app.add_route(
                path, _not_allowed, methods=["PUT", "PATCH", "DELETE"], include_in_schema=False
            )

    async def one(
        self, http: Request, name: str, words: WordsAsked, reader: ReaderAsks
    ) -> Response:
        """Follow one stream or query, or read a page of it."""
        return await self._answer(http, [name], words, reader)

    async def one_posted(
        self, http: Request, name: str, words: WordsAsked, reader: ReaderAsks, asked: Asked
    ) -> Response:
        """Follow a stream, with the parameters in a body: up to 10,000 devices."""
        return await self._posted(http, [name], words, reader, asked)

    async def several(
        self,
        http: Request,
        stream: Annotated[list[str], Query(description="A stream or a query; up to 16.")],
        words: WordsAsked,
        reader: ReaderAsks,
    ) -> Response:
        """Follow several streams and queries in one connection with one cursor, or read a page."""
        return await self._answer(http, stream, words, reader)

    async def several_posted(
        self, http: Request, words: WordsAsked, reader: ReaderAsks, asked: AskedOfSeveral
    ) -> Response:
        """Follow streams, with the parameters in a body: up to 10,000 devices."""
        return await self._posted(http, list(asked.streams), words, reader, asked)

    async def published(
        self, http: Request, name: str, words: WordsAsked, reader: ReaderAsks
    ) -> Response:
        """Follow a publication, or read a page of it."""
        return await self._answer(http, [], words, reader, publication=name)

    async def published_posted(
        self, http: Request, name: str, words: WordsAsked, reader: ReaderAsks, asked: Asked
    ) -> Response:
        """Follow a publication, with the parameters in a body: up to 10,000 devices."""
        return await self._posted(http, [], words, reader, asked, publication=name)

    async def _posted(
        self,
        http: Request,
        names: list[str],
        words: Words,
        reader: Principal,
        asked: Asked,
        *,
        publication: str | None = None,
    ) -> Response:
        try:
            both = asked.with_words(words)
        except RequestError as error:
            return problem_of(error, retry_after_s=0).response()
        return await self._answer(
            http, names, both, reader, devices=asked.devices, publication=publication
        )

    async def _answer(
        self,
        http: Request,
        names: list[str],
        words: Words,
        reader: Principal,
        *,
        devices: Sequence[str] | None = None,
        publication: str | None = None,
    ) -> Response:
        form: Form | None = None
        asked: asked_for.Request | None = None
        try:
            only_of_pages = (words.limit, words.wait, words.after)
            form = answer.form_of(words.accept, only_of_pages, words.form)
            asked = _asked(
                names,
                words,
                now_ms=self._clock.now_ms(),
                devices=devices,
                publication=publication,
            )
            lease = _lease(words.lease_header or words.lease)
            if form is None:
                wished = self._streams.wish(words.slow, words.slow_after)
                return await self._stream(http, asked, lease, reader, wished)
            answer.check_pace(words.max_rate, words.slow or words.slow_after)
            bounds = answer.bounds_of(words.limit, words.wait)
            return await self._page(
                http, asked, lease, bounds, form, reader, if_none_match=words.if_none_match
            )
        except REFUSED as error:
            if (
                isinstance(error, UnknownStream)
                and asked is not None
                and self._hub.has_stream(asked.cursor, error.name)
            ):
                error = Unavailable(f"stream {error.name!r} is not there at the moment")
            problem = problem_of(error, retry_after_s=self._streams.retry_after_s())
        except Exception as error:  # our own fault, which must not end a browser's stream either
            log.error("%s: %r", http.url.path, error, extra={"event": "http.error"}, exc_info=error)
            problem = Problem(500, "internal", "our fault; the log has it")
        self._metrics.refused.labels(problem.code).inc()
        is_event_source = http.method == "GET" and "sec-fetch-mode" in http.headers
        if form is None and problem.status >= 500 and is_event_source:
            return Later(LATER * self._streams.retry_ms())
        return problem.response()

    async def _stream(
        self,
        http: Request,
        asked: asked_for.Request,
        lease: tuple[str, str] | None,
        reader: Principal,
        wished: Wish,
    ) -> Response:
        """Open a stream; stop and clean up when the client hangs up meanwhile."""
        stream = self._place(http, asked, reader, wished)
        found = await self._while_there(
            stream, self._open(stream, asked, lease, reader), within_s=OPEN_S
        )
        return found or Response(status_code=204)  # nobody is there to read it

    async def _page(
        self,
        http: Request,
        asked: asked_for.Request,
        lease: tuple[str, str] | None,
        bounds: Bounds,
        form: Form,
        reader: Principal,
        *,
        if_none_match: str,
    ) -> Response:
        stream = self._place(http, asked, reader)
        try:
            work = self._pages.read(stream, asked, lease, bounds, reader)
            page = await self._while_there(
                stream, work, within_s=OPEN_S + bounds.wait_s + answer.WAIT_S_MAX
            )
        finally:
            stream.close()
        if stream.why_ended is not None:
            return ended(stream.why_ended).response()
        if page is None:
            return Response(status_code=204)
        self._metrics.superseded.labels("page").inc(page.superseded)
        return await answer.response(
            page,
            form,
            self._bodies,
            holder(reader, self._clients.of_request(http)),
            resumes=asked.cursor is not None and http.method == "GET",
            is_public=is_everybodys(reader),
            if_none_match=if_none_match,
        )

    def _place(
        self,
        http: Request,
        asked: asked_for.Request,
        reader: Principal,
        wished: Wish | None = None,
    ) -> OpenStream:
        stream = self._streams.add(
            connection_of(http.scope),
            client=self._clients.of_request(http),
            reader=reader,
            heartbeat_s=asked.heartbeat_s,
            wished=wished,
        )
        stream.sees_heartbeats = asked.heartbeat_events
        return stream

    async def _while_there(
        self, stream: OpenStream, work: Coroutine[Any, Any, T], *, within_s: float
    ) -> T | None:
        """Work for a client while it is connected; None where it has hung up.

        Raises Unavailable after `within_s`.
        """
        working: asyncio.Task[T] = asyncio.create_task(work)
        try:
            waited: set[asyncio.Future[Any]] = {working, stream.lost}
            await asyncio.wait(waited, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
            if working.done() and not stream.lost.done():
                return working.result()
        except BaseException:
            await _abandon(working)
            stream.close()
            raise
        await _abandon(working)
        stream.close()
        if stream.lost.done():
            return None
        raise Unavailable(f"Kafka did not say within {within_s:.0f} s where to begin")

    async def _open(
        self,
        stream: OpenStream,
        asked: asked_for.Request,
        lease: tuple[str, str] | None,
        reader: Principal,
    ) -> Response:
        asked = await self._found(asked, reader)
        opener = _OneClient(self._hub, self._streams, stream, asked, reader, self._clock)
        there = asked.subscription.streams
        await self._hub.check_filters(asked.subscription, reader)
        who = subscription.who_names(asked.subscription, reader)
        if asked.waits:
            there = await self._hub.catalogue.present(there, who)
        absent = tuple(name for name in asked.subscription.streams if name not in there)
        wrong = [name for name in absent if not is_stream(name)]
        if wrong:
            raise UnknownStream(wrong[0], [])
        await self._hub.check_names(asked.subscription, there, reader)
        self._streams.claim(stream, subscription.sight(asked.subscription, reader))
        opened = await opener.open(there, cursor=asked.cursor) if there else None
        if opened is None and there:
            stream.close()
            # The standard's word for "do not come back".
            return Response(status_code=204, headers={"Edgewake-Start": "stopped"})
        cursor = "" if opened is None else opened.session.cursor()
        report = None if lease is None else LeaseReport(self._leases, lease, there, cursor)
        return EventStream(
            stream,
            opened,
            absent=absent,
            opener=opener,
            hub=self._hub,
            streams=self._streams,
            metrics=self._metrics,
            lease=report,
        )

    async def _found(self, asked: asked_for.Request, reader: Principal) -> asked_for.Request:
        """With the streams of its publication, where it names one."""
        if asked.publication is None:
            return asked
        found = await self._hub.catalogue.find_publication(asked.publication, reader)
        return asked_for.through(asked, found)


class _OneClient:
    """Opens a client's streams: all, or those of them that are there."""

    def __init__(
        self,
        hub: Hub,
        streams: OpenStreams,
        stream: OpenStream,
        asked: asked_for.Request,
        reader: Principal,
        clock: Clock,
    ) -> None:
        self._hub, self._streams, self._stream, self._asked, self._reader, self._clock = (
            hub,
            streams,
            stream,
            asked,
            reader,
            clock,
        )

    def arrived(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Which of these streams are there now."""
        who = subscription.who_names(self._asked.subscription, self._reader)
        there = self._hub.catalogue.seen_by(who)
        return tuple(name for name in names if name in there)

    async def open(
        self, names: tuple[str, ...], *, cursor: str | None, has_waited: bool = False
    ) -> Opened | None:
        """See `stream_response.Opener`.

        None where the client asked to stop at a gap and comes back with its cursor.
        """
        asked = replace(
            self._asked,
            subscription=self._asked.subscription.model_copy(
                update={"streams": tuple(sorted(names))}
            ),
            cursor=cursor,
        )
        if has_waited or (asked.waits and cursor is not None):
            asked = replace(asked, start=LogEnd.EARLIEST)  # all of what was waited for came since
        plan = await self._hub.open(asked.subscription, self._reader)
        try:
            start = await self._hub.start(plan, asked)
            if start.how == "stopped":
                self._hub.close(plan)
                return None
            self._streams.admit(self._stream, replays=start.how != "latest" and not has_waited)
            session = Session(
                self._hub,
                plan,
                start,
                on_gap=asked.on_gap,
                checkpoint_events=asked.checkpoint_events,
                heartbeat_events=asked.heartbeat_events,
                pace=asked.pace,
                account=self._streams.held.account(self._stream.holder),
                clock=self._clock,
                on_change=self._streams.on_change,
                on_superseded=self._streams.metrics.superseded.labels("stream").inc,
            )
        except BaseException:
            self._hub.close(plan)
            raise
        return Opened(plan, start, session)


def _asked(
    names: list[str],
    words: Words,
    *,
    now_ms: int,
    devices: Sequence[str] | None,
    publication: str | None,
) -> asked_for.Request:
    return asked_for.request(
        names,
        now_ms=now_ms,
        devices=devices,
        publication=publication,
        sample=words.sample,
        conflate=words.conflate,
        max_rate=words.max_rate,
        per=words.per,
        where=words.where,
        select=words.select,
        start=words.start,
        on_gap=words.on_gap,
        checkpoint=words.checkpoint,
        heartbeat=words.heartbeat,
        beat=words.beat,
        absent=words.absent,
        cursors=(
            words.last_event_id,
            words.after,
            words.cursor,
            words.foreign_cursor,
            words.other_cursor,
        ),
    )


def _lease(name: str | None) -> tuple[str, str] | None:
    found = None if not name else parse_name(name)
    if name and found is None:
        raise RequestError("lease", "lease: expected ID.TOKEN as the push proxy gave them")
    return found


async def _abandon(working: asyncio.Task[Any]) -> None:
    """Give up what is being done, and what was done in the same moment."""
    working.cancel()
    await asyncio.wait({working})
    if not working.cancelled() and working.exception() is None:
        done = working.result()
        if isinstance(done, EventStream):
            done.discard()


def problem_of(error: Exception, *, retry_after_s: int) -> Problem:
    """What to answer to a request that cannot be served."""
    match error:
        case UnknownStream():
            return Problem(404, "unknown_stream", str(error), near=error.near)
        case UnknownPublication():
            return Problem(404, "unknown_publication", str(error), near=error.near)
        case CursorError():
            return Problem(400, f"cursor_{error.reason}", str(error))
        case FilterError():
            return Problem(422, "filter", str(error))
        case SubscriptionTooLarge():
            return Problem(422, error.code, str(error))
        case RequestError():
            return Problem(400, error.code, str(error))
        case Full():
            return Problem(503, "full", str(error), headers={"Retry-After": str(retry_after_s)})
        case _:
            return Problem(
                503, "unavailable", str(error), headers={"Retry-After": str(retry_after_s)}
            )


def is_everybodys(reader: Principal) -> bool:
    """May a cache that many use keep what this reader is answered?"""
    return reader.proof.kind is Kind.ANONYMOUS


async def _options(_: Request) -> Response:
    return Response(status_code=204, headers=ALLOW)


async def _not_allowed(_: Request) -> Response:
    return Problem(
        405, "method_not_allowed", "streams are read with GET, or POST", headers=ALLOW
    ).response()
