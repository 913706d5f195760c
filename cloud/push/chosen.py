"""What a delivery, a group or a lease is of, as it is asked for and as it is kept.

A publication is kept by its name, and looked up each time it is read: what an operator changed in
it holds from then on, as for who reads it as a stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.request import Request, RequestError, normal, request, through
from edgewake.cloud.log.wanted import Wanted, wanted
from edgewake.cloud.push.leases import lease_rights
from edgewake.cloud.rights.principal import Action, Principal
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.leases.chosen import Chosen
from edgewake.protocol.ops.publication import Publication


class Kept(Protocol):
    """A stored delivery or group."""

    @property
    def streams(self) -> tuple[str, ...]: ...
    @property
    def publication(self) -> str | None: ...
    @property
    def where(self) -> str | None: ...
    @property
    def select(self) -> str | None: ...
    @property
    def devices(self) -> tuple[str, ...] | None: ...
    @property
    def sample(self) -> float | None: ...
    @property
    def per(self) -> tuple[str, ...]: ...


async def chosen(hub: Hub, asked: Chosen, reader: Principal) -> Wanted:
    """What is asked for, of a publication with its streams.

    Raises RequestError, UnknownPublication and Unavailable; rights to streams are not looked at.
    """
    found = checked(asked)
    if asked.publication is not None:
        found = through(found, await _opened(hub, asked.publication, reader))
    return wanted(found.subscription)


def checked(asked: Chosen) -> Request:
    """The request, of a publication before its streams are known. Raises RequestError."""
    return request(
        asked.streams,
        now_ms=0,
        where=asked.where,
        select=asked.select,
        devices=asked.devices,
        publication=asked.publication,
        sample=None if asked.sample is None else str(asked.sample),
        per=asked.per,
    )


async def check_wake(hub: Hub, subscription: Wanted, reader: Principal) -> None:
    """Raises UnknownStream, UnknownPublication or Unavailable for who may not be called for it."""
    if subscription.publication is None:
        await hub.check(subscription.streams, reader, Action.WAKE)
    else:
        await _opened(hub, subscription.publication.name, reader)


async def _opened(hub: Hub, name: str, reader: Principal) -> Publication:
    await hub.catalogue.find_publication(name, reader, Action.WAKE)
    return await hub.catalogue.find_publication(name, reader)


def kept(hub: Hub, stored: Kept) -> Wanted:
    """What a stored one is of now. Raises Unavailable where its publication is not there."""
    publication, streams = None, stored.streams
    if stored.publication is not None:
        named = hub.catalogue.named
        publication = None if named is None else named.publication(stored.publication)
        if publication is None:
            raise Unavailable(f"publication {stored.publication!r} is not there")
        streams = publication.streams
    return normal(
        Wanted(
            streams=streams,
            where=stored.where,
            select=stored.select,
            devices=None if stored.devices is None else frozenset(stored.devices),
            publication=publication,
            sample=stored.sample,
            per=stored.per,
        )
    )


def check_whole(publication: Publication | None, what: str) -> None:
    """Raises RequestError for a publication of which not every event is given."""
    if publication is not None and publication.limits.conflate_ms is not None:
        raise RequestError(
            "publication",
            f"publication {publication.name!r} gives the latest of each thing alone "
            f"(conflate_ms), and {what} has every event: expected another publication, or read "
            "this one as a stream or in pages",
        )


def check_unpaced(publication: Publication | None) -> None:
    """Raises RequestError for a publication that says how fast its readers are served."""
    if publication is not None and publication.limits.max_rate is not None:
        raise RequestError(
            "publication",
            f"publication {publication.name!r} is paced (max_rate), and how fast a group is done "
            "its workers say: expected another publication, or a delivery",
        )


def names_of(devices: frozenset[str] | None) -> tuple[str, ...] | None:
    """Devices as they are stored."""
    return None if devices is None else tuple(sorted(devices))


def publication_of(subscription: Wanted) -> str | None:
    """The name of its publication."""
    return None if subscription.publication is None else subscription.publication.name


def right_of(reader: Principal, subscription: Wanted) -> str:
    """The right to read it, as it is stored."""
    return lease_rights.right_of(
        reader,
        subscription.streams,
        Action.READ,
        where=subscription.where,
        publication=publication_of(subscription),
    )


def rate_of(subscription: Wanted, asked: float | None) -> float | None:
    """Events a second: what was asked for, within what its publication allows."""
    publication = subscription.publication
    allowed = None if publication is None else publication.limits.max_rate
    rates: Sequence[float] = [rate for rate in (asked, allowed) if rate is not None]
    return min(rates, default=None)
