"""Routes that find acknowledged frames."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from edgewake.cloud.ops.lookups import acks, frame_search
from edgewake.cloud.ops.lookups.acks import AckView
from edgewake.cloud.ops.lookups.frame_search import FrameFound
from edgewake.cloud.ops.lookups.kafka_lookup import OutOfRange
from edgewake.cloud.ops.routes.shared import OFFSET_MAX, Services
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.errors import RemoteError
from edgewake.protocol.frames.ack import TOKEN_PATTERN, AckToken
from edgewake.protocol.frames.frame import COUNTER_MAX
from edgewake.protocol.names import DEVICE_PATTERN, STREAM_PATTERN


def router(services: Services) -> APIRouter:
    """Makes the routes that find acknowledged frames."""
    routes = APIRouter()

    @routes.get("/v1/acks/{token}", tags=["acks"], responses=problems(404))
    async def ack(
        token: Annotated[str, Path(pattern=TOKEN_PATTERN, max_length=32)],
        from_offset: Annotated[
            int | None,
            Query(ge=0, le=OFFSET_MAX, description="Continue a search whose state is `searching`."),
        ] = None,
    ) -> AckView:
        """Show the progress of the frame that was acknowledged with this token."""
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

    @routes.get("/v1/acks", tags=["acks"], responses=problems(404, 503))
    async def search(
        device: Annotated[str, Query(pattern=f"^{DEVICE_PATTERN.pattern}$")],
        stream: Annotated[str, Query(pattern=f"^{STREAM_PATTERN.pattern}$")],
        seq: Annotated[int, Query(ge=0, le=COUNTER_MAX)],
        epoch: Annotated[int | None, Query(ge=0, le=COUNTER_MAX)] = None,
    ) -> FrameFound:
        """Find the token of a reading's frame by device and number.

        The newest 20,000 records of each partition are searched; without `epoch` the newest frame
        counts.
        """
        if stream not in services.tables.streams:
            raise Problem(
                404, "no_such_stream", f"unknown stream {stream!r}; GET /v1/streams lists them"
            )
        found = await services.lookup.run(
            lambda session: frame_search.find(session, stream, device, seq, epoch)
        )
        if found is None:
            detail = (
                f"no reading {seq} of {device!r} among the newest {frame_search.RECORDS_MAX} "
                f"records of each partition of {stream!r}"
            )
            raise Problem(404, "no_such_reading", detail)
        return found

    return routes
