"""The port through which the proxy reads what a sleeping client does not.

`Watch.open` checks a subscription and its cursor and stands there; `Watched.next` waits for what comes after. The adapter to the hub of
the access tier is `edgewake.cloud.push.hub_watch`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from edgewake.protocol.lease import Subscription


@dataclass(frozen=True, slots=True)
class Seen:
    """What came between the place before and `cursor`."""

    cursor: str
    count: int = 0
    """Events that the subscription wants."""
    previews: Sequence[Mapping[str, Any]] = ()
    """The first of them."""
    first_at: int | None = None
    """When the first of them entered the cloud, ms since 1970 UTC; None where unknown."""
    gap: bool = False
    """Part of the range is lost."""
    more: bool = False
    """More is there already."""


class Watched(Protocol):
    """One subscription from one place on. Not shared."""

    async def next(self, *, previews_max: int) -> Seen:
        """Wait until the place moves. May be cancelled: what was not returned comes again. Raises Unavailable: then open anew."""

    def skip_to_end(self) -> str:
        """Go to the end as it is now, without reading; the cursor of it. Raises Unavailable."""

    def close(self) -> None:
        """Leave."""


class Watch(Protocol):
    """Opens subscriptions."""

    async def open(self, subscription: Subscription, cursor: str) -> Watched:
        """Stand at `cursor`.

        Raises CursorError, FilterError, LookupError (an unknown stream) or Unavailable. A cursor older than what is kept is no
        error: the first `next` says `gap`.
        """
