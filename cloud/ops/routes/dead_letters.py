"""Routes that list, read and replay dead letters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from edgewake.cloud.bridge.admission.catalogue import AwaitsCatalogueError, NotNow
from edgewake.cloud.ops.letters import dead_letters, letter_replay
from edgewake.cloud.ops.letters.dead_letters import DeadLetterPage, Filter, LetterCounts
from edgewake.cloud.ops.letters.letter_replay import Replay
from edgewake.cloud.ops.letters.letter_replayer import Letter
from edgewake.cloud.ops.lookups.kafka_lookup import OutOfRange
from edgewake.cloud.ops.routes.shared import OFFSET_MAX, Offset, Services
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.errors import RejectReason, RemoteError
from edgewake.protocol.frames import record
from edgewake.protocol.frames.dead_letter import known_reason
from edgewake.protocol.topics import parse_up


class ReplayView(BaseModel):
    """A replayed letter, and the position of its readings."""

    letter: int
    """Offset of the letter, or of another letter that holds a copy of the same message."""
    received_at: int
    """When the bridge that refused the message received it, ms since 1970 UTC."""
    device: str
    stream: str
    partition: int
    offset: int
    """Offset of the record on the stream's topic."""
    replayed_at: int
    holder: str
    """Name of the key that requested it."""
    was_replayed: bool
    """Whether it had been replayed before, so that nothing was done."""


class CheckedView(BaseModel):
    """What a replay would write."""

    device: str
    stream: str
    is_mended: bool
    """Whether another payload replaces the letter's."""
    readings: list[dict[str, Any]]
    """Its first readings."""


class ReplayAll(BaseModel):
    """A filter of letters to replay."""

    model_config = ConfigDict(extra="forbid")

    reason: RejectReason | None = None
    device: Annotated[str | None, Field(max_length=64)] = None
    first: Annotated[int, Field(ge=0, le=OFFSET_MAX)] = 0
    """The offset to begin at: the `next` of the previous answer."""
    before: Annotated[int, Field(ge=0, le=OFFSET_MAX)]
    """Only letters before this offset: the `newest` of an earlier count."""


class RefusedAgain(BaseModel):
    """A letter that would be refused again."""

    offset: int
    detail: str


class ReplayedView(BaseModel):
    """The outcome of replaying letters."""

    given_back: int
    were_back: int
    """How many had been replayed before, so that nothing was done."""
    refused: int
    refusals: list[RefusedAgain]
    """Some of the refused ones, with the reason."""
    next: int | None
    """The `first` of the next request; null: all were tried."""


REPLAYED_AT_ONCE: Final = 50
"""The most letters that one request replays, each in a transaction, which takes some seconds."""
REPLAY_S: Final = 10.0
"""Seconds after which the request is answered, with the offset to continue at."""
REFUSALS_TOLD: Final = 20
COUNTED_H: Final = 24
"""The hours for which letters are counted."""
READINGS_SHOWN: Final = 20
MENDED_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": False,
        "description": "A payload that replaces the letter's; empty: the letter's own.",
        "content": {"application/octet-stream": {}},
    }
}


class Payload(Response):
    """A response with the payload's exact bytes."""

    media_type = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class _Desk:
    """Replays letters. Raises Problem."""

    services: Services

    async def prepared(self, offset: int, mended: bytes) -> tuple[Replay, Letter, bool]:
        """Checks a letter as the bridges would now; True: another payload replaces its own."""
        try:
            origin, value, letter = await self.services.lookup.run(
                lambda session: dead_letters.for_replay(session, offset)
            )
            row = self.services.tables.names.get(parse_up(origin.topic).stream)
            found = letter_replay.prepare(
                origin, mended or value, row, now_ms=self.services.clock.now_ms()
            )
        except OutOfRange as error:
            raise _unknown(error) from error
        except (RemoteError, AwaitsCatalogueError) as error:
            raise _refused(error) from error
        return found, letter, mended not in (b"", value)

    async def given_back(self, ready: Replay, letter: Letter, holder: str) -> ReplayView:
        """Replays a letter to its stream, once."""
        try:
            if ready.learns is not None:
                await self.services.editor.learn(ready.learns)
            found, was_replayed = await self.services.replayer.replay(ready, letter, holder=holder)
        except (RemoteError, AwaitsCatalogueError) as error:
            raise _refused(error) from error
        return ReplayView(
            **found.model_dump(exclude={"same", "letter_at"}), was_replayed=was_replayed
        )


def router(services: Services) -> APIRouter:
    """Makes the routes about dead letters."""
    routes = APIRouter(tags=["dead letters"])
    desk = _Desk(services)

    @routes.get("/v1/dead-letters")
    async def letters(
        limit: Annotated[int, Query(ge=1, le=100)] = 50,
        before: Annotated[int | None, Query(ge=0, le=OFFSET_MAX)] = None,
        reason: RejectReason | None = None,
        device: Annotated[str | None, Query(max_length=64)] = None,
    ) -> DeadLetterPage:
        """List refused messages, newest first.

        A filter scans 5000 letters; `next` continues there.
        """
        wanted = Filter(reason, device)
        return await services.lookup.run(
            lambda session: dead_letters.page(
                session, services.letters, before=before, limit=limit, wanted=wanted
            )
        )

    @routes.get("/v1/dead-letters/{offset}", response_class=Payload, responses=problems(404))
    async def letter(offset: Offset) -> Response:
        """Return the payload's exact bytes."""
        try:
            value, view = await services.lookup.run(
                lambda session: dead_letters.payload(session, offset)
            )
        except OutOfRange as error:
            raise _unknown(error) from error
        # The bytes are untrusted: a browser must never render them as what they claim to be.
        headers = {
            "Content-Disposition": f'attachment; filename="dead-letter-{offset}"',
            "X-Content-Type-Options": "nosniff",
            "X-Edgewake-Reason": known_reason(view.reason),
        }
        return Payload(value, headers=headers)

    @routes.get("/v1/dead-letter-counts")
    async def counted(
        reason: RejectReason | None = None,
        device: Annotated[str | None, Query(max_length=64)] = None,
    ) -> LetterCounts:
        """Count refused messages by hour of the last day and reason, among the newest 5000."""
        since = services.clock.now_ms() - COUNTED_H * dead_letters.HOUR_MS
        return await services.lookup.run(
            lambda session: dead_letters.counts(
                session, services.letters, since=since, wanted=Filter(reason, device)
            )
        )

    @routes.post(
        "/v1/dead-letters/{offset}/check",
        responses=problems(404, 409, 422),
        openapi_extra=MENDED_BODY,
    )
    async def check(offset: Offset, request: Request) -> CheckedView:
        """Check whether a letter would be accepted now, or the body in its place.

        Nothing is written.

        409 or 422 says why it would be refused.
        """
        found, _, is_mended = await desk.prepared(offset, await request.body())
        readings = list(islice(record.readings(record.decode(found.value)), READINGS_SHOWN))
        return CheckedView(
            device=found.device, stream=found.stream, is_mended=is_mended, readings=readings
        )

    @routes.post(
        "/v1/dead-letters/{offset}/replay",
        responses=problems(404, 409, 422),
        openapi_extra=MENDED_BODY,
    )
    async def replay(offset: Offset, request: Request) -> ReplayView:
        """Replay a letter to its stream, once its cause is fixed.

        A body replaces the letter's payload, which the audit log records. A repeated request
        returns the position of the readings and changes nothing.
        """
        ready, letter, is_mended = await desk.prepared(offset, await request.body())
        if is_mended:
            request.state.audit = "with another payload"
        return await desk.given_back(ready, letter, request.state.holder.name)

    _add_replay_all(routes, desk)
    return routes


def _add_replay_all(routes: APIRouter, desk: _Desk) -> None:
    services = desk.services

    @routes.post("/v1/dead-letters:replay", responses=problems(503))
    async def replay_all(asked: ReplayAll, request: Request) -> ReplayedView:
        """Replay all letters that match a filter, oldest first, fifty at a time.

        Continue with `next` as `first`. Each letter is replayed once, however often this is
        requested; those that would still be refused stay.
        """
        holder, clock = request.state.holder.name, services.clock
        wanted = Filter(asked.reason, asked.device)
        offsets, following = await services.lookup.run(
            lambda session: dead_letters.ahead(
                session,
                services.letters,
                first=asked.first,
                before=asked.before,
                limit=REPLAYED_AT_ONCE,
                wanted=wanted,
            )
        )
        until_s = clock.monotonic_s() + REPLAY_S
        done: Counter[bool] = Counter()
        refusals: list[RefusedAgain] = []
        for offset in offsets:
            if clock.monotonic_s() > until_s:
                following = offset
                break
            try:
                ready, letter, _ = await desk.prepared(offset, b"")
                done[(await desk.given_back(ready, letter, holder)).was_replayed] += 1
            except Problem as problem:
                refusals.append(RefusedAgain(offset=offset, detail=problem.detail))
        request.state.audit = (
            f"of {asked.reason or 'any reason'}, {asked.device or 'any device'}: "
            f"{done[False]} given back, {len(refusals)} refused"
        )
        return ReplayedView(
            given_back=done[False],
            were_back=done[True],
            refused=len(refusals),
            refusals=refusals[:REFUSALS_TOLD],
            next=following,
        )


def _unknown(error: OutOfRange) -> Problem:
    return Problem(404, "no_such_dead_letter", str(error), low=error.low, high=error.high)


def _refused(error: RemoteError | AwaitsCatalogueError) -> Problem:
    """Explains why the bridges would refuse a letter now."""
    if isinstance(error, AwaitsCatalogueError):
        text = (
            f"stream {error.stream!r}, or a field of it, is not in the catalogue: expected a "
            "device to send it before"
        )
        return Problem(409, "not_in_catalogue", text)
    return (
        Problem(409, "not_yet", str(error))
        if isinstance(error, NotNow)
        else Problem(422, "still_refused", str(error))
    )
