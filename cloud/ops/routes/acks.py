"""The route that tells what became of an acknowledged frame."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from edgewake.cloud.ops.lookups import acks
from edgewake.cloud.ops.lookups.acks import AckView
from edgewake.cloud.ops.lookups.kafka_lookup import OutOfRange
from edgewake.cloud.ops.routes.shared import OFFSET_MAX, Services
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.errors import RemoteError
from edgewake.protocol.frames.ack import TOKEN_PATTERN, AckToken


def router(services: Services) -> APIRouter:
    """Look acknowledged frames up."""
    routes = APIRouter()

    @routes.get("/v1/acks/{token}", tags=["acks"], responses=problems(404))
    async def ack(
        token: Annotated[str, Path(pattern=TOKEN_PATTERN, max_length=32)],
        from_offset: Annotated[
            int | None,
            Query(ge=0, le=OFFSET_MAX, description="Go on with a search that is `searching`."),
        ] = None,
    ) -> AckView:
        """What became of the frame that was acknowledged with this token."""
        tables = services.tables
        try:
            parsed = AckToken.parse(token)
            found = await services.lookup.run(
                lambda session: acks.look_up(
                    session, parsed, now_ms=services.clock.now_ms(), from_offset=from_offset
                )
            )
        except RemoteError as error:
            raise Problem(422, "ack_token", str(error)) from error
        except OutOfRange as error:
            raise Problem(
                404, "no_such_frame", str(error), low=error.low, high=error.high
            ) from error
        except LookupError as error:
            raise Problem(404, "no_such_frame", str(error.args[0])) from error
        return acks.with_queries(found, tables.queries, tables.progress.values())

    return routes
