"""Decides which filters leases on one set of streams may have. No I/O.

Two kinds cost something for every event or much memory, and have a bound each, of which one client
has its share: filters that no index finds, which are evaluated for every event, and long lists of
values. A filter that some lease already has costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from edgewake.cloud.client_share import Bound
from edgewake.cloud.log.filters.filter_syntax import parse_where
from edgewake.cloud.push.counting.matching import demand_of
from edgewake.protocol.clock import Clock

VALUES_MAX: Final = 1_000_000
"""The most values in long lists of the filters of one set of streams, some 250 bytes each with
their places in the index. Rights name such lists."""
VALUES_FREE: Final = 100
"""The most values of a filter that are not counted: its text is small."""
ADMITTED_S: Final = 60.0
"""Seconds that a filter counts against its bound while its lease is being stored."""


class Known(Protocol):
    """The filters of leases at the live end."""

    @property
    def scanned(self) -> int:
        """How many of them are evaluated for every event."""

    def get(self, where: str | None) -> object | None:
        """Returns something for a filter that a lease has, else None."""


@dataclass(frozen=True, slots=True)
class _Listed:
    """A filter with many values: the client that asked for it first, and when."""

    client: str
    count: int
    at: float


class FilterAdmission:
    """The filters that were admitted for one set of streams."""

    def __init__(
        self, known: Callable[[], Known], clock: Clock, has_leases_behind: Callable[[], bool]
    ) -> None:
        """`known` is asked each time: counting that starts over has other filters.

        While `has_leases_behind`, any admitted filter may belong to such a lease.
        """
        self._known = known
        self._clock = clock
        self._has_leases_behind = has_leases_behind
        self._admitted: dict[str, float] = {}
        """Filters to be evaluated for every event that no lease at the live end has yet, and when
        they were admitted."""
        self._askers: dict[str, str] = {}
        """Such a filter → the first client that asked for it since this process started."""
        self._lists: dict[str, _Listed] = {}
        """The filters with more than VALUES_FREE values."""

    def refusal(
        self, where: str | None, client: str, *, scanned: Bound, values: Bound
    ) -> str | None:
        """Returns why a lease may not have this filter, or None and admits it.

        `scanned` bounds the filters that are evaluated for every event, `values` what long lists
        hold.
        """
        if where is None or self._known().get(where) is not None:
            return None
        demand = demand_of(parse_where(where))
        if demand is None:
            why = self._refusal_of_scanned(where, scanned, client)
            return None if why is None else f"{why}: add a condition such as device = 'car-7'"
        if len(demand.keys) <= VALUES_FREE:
            return None
        return self._refusal_of_list(where, len(demand.keys), values, client)

    def _refusal_of_list(self, where: str, count: int, bound: Bound, client: str) -> str | None:
        now = self._clock.monotonic_s()
        self._lists = {
            one: listed
            for one, listed in self._lists.items()
            if self._known().get(one) is not None or self._may_be_stored(listed.at, now)
        }
        others = [listed for one, listed in self._lists.items() if one != where]
        held = sum(listed.count for listed in others if listed.client == client)
        total = sum(listed.count for listed in others)
        refused = bound.refusal(total=total + count - 1, held=held + count - 1)
        if refused is None:
            self._lists[where] = _Listed(client, count, now)
        return refused

    def _refusal_of_scanned(self, where: str, bound: Bound, client: str) -> str | None:
        now = self._clock.monotonic_s()
        self._admitted = {
            one: at
            for one, at in self._admitted.items()
            if self._known().get(one) is None and self._may_be_stored(at, now)
        }
        self._askers = {
            one: who
            for one, who in self._askers.items()
            if one in self._admitted or self._known().get(one) is not None
        }
        if where not in self._admitted:
            held = sum(who == client for who in self._askers.values())
            refused = bound.refusal(total=self._known().scanned + len(self._admitted), held=held)
            if refused is not None:
                return refused
            self._askers[where] = client
        self._admitted[where] = now
        return None

    def _may_be_stored(self, admitted_at: float, now: float) -> bool:
        """Returns whether a lease with the filter may be on its way, or behind the live end."""
        return self._has_leases_behind() or now - admitted_at < ADMITTED_S
