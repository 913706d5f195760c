"""Decides who is let in, by what a client's address has open already.

Pure; raises Full with the reason.

What everybody uses, a single stream without a filter, is never refused for its view: it has a
reserve that no filter can take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Set
from typing import Final

from edgewake.cloud.access.config import AccessConfig
from edgewake.cloud.client_share import RESERVE, Bound
from edgewake.cloud.log.following.followed import FollowedStreams
from edgewake.cloud.log.hub_bounds import Full
from edgewake.cloud.log.subscription import Sight
from edgewake.cloud.log.wanted import wanted
from edgewake.protocol.ops.publication import Publication

DEVICES_NAMED_MAX: Final = 1_000_000
"""Devices that all open requests name one by one, some 250 bytes each with their places in the
indexes; a request may name 10,000."""


def _named(sight: Sight) -> int:
    """Devices that it names one by one."""
    return len(wanted(sight.subscription).devices or ())


class Holding:
    """What one client has open."""

    def __init__(self) -> None:
        self._sights: Counter[Sight] = Counter()
        self._names: Counter[str] = Counter()
        """Each stream → how many of these subscriptions read it."""
        self.devices = 0
        """Devices that its requests name one by one."""
        self.filters = 0
        """Its different subscriptions that not everybody uses."""

    def __contains__(self, sight: Sight) -> bool:
        """Does the client read this one already?"""
        return sight in self._sights

    @property
    def names(self) -> Set[str]:
        """The streams that are followed for it."""
        return self._names.keys()

    def add(self, sight: Sight) -> None:
        """Count a view that this client reads as well."""
        if sight not in self._sights:
            self._change(sight, 1)
        self._sights[sight] += 1

    def more_devices(self, sight: Sight) -> int:
        """How many devices it would name more."""
        return 0 if sight in self._sights else _named(sight)

    def drop(self, sight: Sight) -> None:
        """Count one reading of the view less."""
        self._sights[sight] -= 1
        if self._sights[sight] <= 0:
            del self._sights[sight]
            self._change(sight, -1)

    def _change(self, sight: Sight, by: int) -> None:
        """Keep the counts: to count at each opening would cost as much as is open."""
        self.devices += by * _named(sight)
        self.filters += by * (not sight.is_common)
        for name in sight.subscription.streams:
            self._names[name] += by
            if not self._names[name]:
                del self._names[name]


class Admission:
    """The bounds of one server."""

    def __init__(self, config: AccessConfig) -> None:
        views_max = config.hub.views_max
        self._streams = Bound("streams", config.clients_max, config.address_share)
        self._filters = Bound(
            "different subscriptions", views_max - int(views_max * RESERVE), config.address_share
        )
        self._replays = Bound("readings of older records", config.replays_max, config.address_share)
        self._names = Bound("followed streams", config.hub.followed_max, config.address_share)
        self._devices = Bound("devices named by requests", DEVICES_NAMED_MAX, config.address_share)

    def stream(self, *, total: int, held: int) -> None:
        """Admit one more open stream."""
        _refuse(self._streams.refusal(total=total, held=held))

    @staticmethod
    def publication(found: Publication, *, held: int) -> None:
        """One more reader of a publication."""
        most = found.limits.readers_max
        if most is not None and held >= most:
            raise Full(f"publication {found.name!r} has {most} readers here, as many as it may")

    def names(
        self, names: Collection[str], *, followed: FollowedStreams, held: Callable[[], Set[str]]
    ) -> None:
        """May the client follow these streams?

        Streams that are followed already cost nothing, and those that nobody reads are dropped for
        them.
        """
        new = set(names) - followed.by_name.keys()
        if not new:
            return
        total, own = sum(entry.readers > 0 for entry in followed.by_name.values()), len(held())
        for number in range(len(new)):
            _refuse(self._names.refusal(total=total + number, held=own + number))

    def view(self, sight: Sight, *, is_served: bool, total: int, held: Callable[[], int]) -> None:
        """A subscription: one that is served already costs nothing more.

        `total` and `held` are those that not everybody uses.
        """
        if not is_served and not sight.is_common:
            _refuse(self._filters.refusal(total=total, held=held()))

    def devices(self, more: int, *, total: Callable[[], int], held: int) -> None:
        """A request that names `more` devices; `total` and `held` are without them."""
        if more:
            last = more - 1
            _refuse(self._devices.refusal(total=total() + last, held=held + last))

    def replay(self, *, total: int, held: Callable[[], int]) -> None:
        """One that begins in the past.

        `total` and `held` are places at which chunks are made, so nobody has more than there are.
        """
        own = (
            held()
            if total >= self._replays.own_max or total >= self._replays.most - self._replays.reserve
            else 0
        )
        _refuse(self._replays.refusal(total=total, held=own))


def _refuse(why: str | None) -> None:
    if why is not None:
        raise Full(why)
