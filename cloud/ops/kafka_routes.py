"""Routes that read Kafka to answer: dead letters and acknowledged frames."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from edgewake.cloud.ops import acks, dead_letters
from edgewake.cloud.ops.acks import AckView
from edgewake.cloud.ops.dead_letters import DeadLetterPage, Filter, known_reason
from edgewake.cloud.ops.kafka_lookup import OutOfRange
from edgewake.cloud.ops.routes import OFFSET_MAX, Offset, Services
from edgewake.cloud.web import Problem
from edgewake.cloud.web_openapi import problems
from edgewake.protocol.ack import TOKEN_PATTERN, AckToken
from edgewake.protocol.errors import RejectReason, RemoteError


class Payload(Response):
    """Bytes as they came."""

    media_type = "application/octet-stream"


def router(services: Services) -> APIRouter:
    """List and read dead letters, look acknowledged frames up."""
    routes = APIRouter()

    @routes.get("/v1/dead-letters", tags=["dead letters"])
    async def letters(
        limit: Annotated[int, Query(ge=1, le=100)] = 50,
        before: Annotated[int | None, Query(ge=0, le=OFFSET_MAX)] = None,
        reason: RejectReason | None = None,
        device: Annotated[str | None, Query(max_length=64)] = None,
    ) -> DeadLetterPage:
        """Refused messages, newest first. A filter looks at 5000 letters; `next` goes on from there."""
        wanted = Filter(reason, device)
        return await services.lookup.run(
            lambda session: dead_letters.page(session, services.letters, before=before, limit=limit, wanted=wanted)
        )

    @routes.get("/v1/dead-letters/{offset}", tags=["dead letters"], response_class=Payload, responses=problems(404))
    async def letter(offset: Offset) -> Response:
        """The payload exactly as it came."""
        try:
            value, view = await services.lookup.run(lambda session: dead_letters.payload(session, offset))
        except OutOfRange as error:
            raise Problem(404, "no_such_dead_letter", str(error), low=error.low, high=error.high) from error
        # It is somebody's wrong bytes: never to be shown by a browser as what it claims to be.
        headers = {
            "Content-Disposition": f'attachment; filename="dead-letter-{offset}"',
            "X-Content-Type-Options": "nosniff",
            "X-Edgewake-Reason": known_reason(view.reason),
        }
        return Payload(value, headers=headers)

    @routes.get("/v1/acks/{token}", tags=["acks"], responses=problems(404))
    async def ack(
        token: Annotated[str, Path(pattern=TOKEN_PATTERN, max_length=32)],
        from_offset: Annotated[int | None, Query(ge=0, le=OFFSET_MAX, description="Go on with a search that is `searching`.")] = None,
    ) -> AckView:
        """What became of the frame that was acknowledged with this token."""
        tables = services.tables
        try:
            parsed = AckToken.parse(token)
            found = await services.lookup.run(
                lambda session: acks.look_up(session, parsed, now_ms=services.clock.now_ms(), from_offset=from_offset)
            )
        except RemoteError as error:
            raise Problem(422, "ack_token", str(error)) from error
        except OutOfRange as error:
            raise Problem(404, "no_such_frame", str(error), low=error.low, high=error.high) from error
        except LookupError as error:
            raise Problem(404, "no_such_frame", str(error.args[0])) from error
        return acks.with_queries(found, tables.queries, tables.progress.values())

    return routes
