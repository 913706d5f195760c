"""The port through which the proxy learns of what sleeping clients have not seen.

A lease has a Counter; `Watch.add` lets it count from a cursor on, and from then on the counter
itself says how many events there are and calls when that matters. The adapter that reads the log is
`edgewake.cloud.push.counting.watchers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from edgewake.cloud.push.counting.tally import Counter
from edgewake.cloud.rights.principal import Principal
from edgewake.protocol.leases.lease import Subscription
from edgewake.protocol.ops.publication import Publication


class Watch(Protocol):
    """Counts for many leases at once."""

    async def check(
        self, subscription: Subscription, cursor: str, client: str, reader: Principal
    ) -> None:
        """May a lease of this client, who is `reader`, have this subscription and cursor?

        Raises CursorError, FilterError, LookupError (an unknown stream), TooManyFilters or
        Unavailable.
        """

    async def things(
        self, streams: tuple[str, ...], reader: Principal
    ) -> Mapping[str, Sequence[str]]:
        """The fields that tell what a thing is: of a stream the device, of a query its groups.

        Raises LookupError (an unknown stream) or Unavailable.
        """

    async def published(self, name: str, reader: Principal) -> Publication:
        """A publication for which this reader may be woken, and which it may read.

        Raises UnknownPublication or Unavailable.
        """

    async def check_sets(self, subscription: Subscription, reader: Principal) -> None:
        """Raises FilterError where the filter is wrong, or uses a set that the reader may not."""

    def has_changed(self, publication: str, version: int) -> bool:
        """Is a publication another one than in this version, or is it gone?"""

    def add(self, counter: Counter, cursor: str) -> None:
        """Count from `cursor` on.

        What cannot be resumed is reported by `counter.fail`, a cursor that is too old by its gap.
        """

    def remove(self, counter: Counter) -> None:
        """Count no more."""

    def cursor(self, counter: Counter) -> str | None:
        """The cursor up to which it has counted.

        None while it is being brought to the live end, and during counting.
        """
