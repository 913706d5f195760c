"""Where a delivery or a group begins to read."""

from __future__ import annotations

from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.request import Request, parse_start
from edgewake.cloud.rights.principal import Principal
from edgewake.protocol.leases.lease import Subscription


async def begin(
    hub: Hub,
    wanted: Subscription,
    reader: Principal,
    *,
    after: str | None,
    start: str | int | None,
    before: str | None = None,
    now_ms: int,
) -> str:
    """The cursor to begin at; it also checks that `reader` may open the subscription.

    That is `after`, else `before`, the cursor so far, else `start` (a time or end of the stream),
    else the live end: `start`, which stands in a file, moves nothing that has begun. Raises
    UnknownStream, FilterError, CursorError, RequestError, Unavailable.
    """
    plan = await hub.open(wanted, reader)
    try:
        if after is not None:
            hub.codec.decode(after)
            return after
        begins = parse_start("latest" if start is None else str(start), now_ms)
        if before is not None:
            return before
        found = await hub.start(plan, Request(wanted, start=begins))
        return hub.codec.encode(plan.cursor(found.positions))
    finally:
        hub.close(plan)
