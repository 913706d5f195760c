"""What a reader may ask for beside streams and filters. Pure.

That is devices, a publication, a share of all devices, and the pace at which events come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from edgewake.cloud.log.filters import filter_sample
from edgewake.protocol.leases.lease import Subscription
from edgewake.protocol.names import FIELD_PATTERN, is_device
from edgewake.protocol.ops.publication import Publication

DEVICES_MAX: Final = 10_000
"""Devices that one request may name: as many as a named set may have. Over it: refused."""
PER_MAX: Final = 8
"""Fields that tell together what is the same thing."""
CONFLATE_MS: Final = (20, 3_600_000)
"""Least and most ms of a pace: one tick of the server, an hour."""
RATE_MAX: Final = 1_000_000
"""Events a second; a higher bound would limit nobody."""


class Wanted(Subscription):
    """A subscription, and what of it."""

    devices: frozenset[str] | None = None
    """These alone; None: all."""
    publication: Publication | None = None
    """Through which its streams are read."""
    sample: float | None = None
    """A share of all things, the same ones on every server; None: all."""
    per: tuple[str, ...] = ()
    """Fields that tell what a thing is, for `sample`; empty: the device, or a result's group."""

    @property
    def is_plain(self) -> bool:
        """Are the streams and filters all that it says?"""
        return self.devices is None and self.publication is None and self.sample is None

    def told(self) -> str:
        """What is beside the filters, as a text; empty where that is nothing."""
        if self.is_plain:
            return ""
        publication = self.publication and (self.publication.name, self.publication.version)
        devices = None if self.devices is None else sorted(self.devices)
        return orjson.dumps([devices, publication, self.sample, self.per]).decode()


def wanted(subscription: Subscription) -> Wanted:
    """Return the subscription as one of this server's."""
    if isinstance(subscription, Wanted):
        return subscription
    return Wanted(
        streams=subscription.streams, where=subscription.where, select=subscription.select
    )


@dataclass(frozen=True, slots=True)
class Pace:
    """How a reader is given its events. None: all, as they come."""

    conflate_ms: int | None = None
    """Emit only the latest of each thing once in this time, ms."""
    max_rate: float | None = None
    """Events a second at most."""
    per: tuple[str, ...] = ()
    """Fields that tell what a thing is; empty: the device, or a result's group."""

    @property
    def is_free(self) -> bool:
        """Is there nothing to keep to?"""
        return self.conflate_ms is None and self.max_rate is None

    def within(self, publication: Publication | None) -> Pace:
        """Return the pace within what a publication allows."""
        if publication is None:
            return self
        limits = publication.limits
        conflate = [one for one in (self.conflate_ms, limits.conflate_ms) if one is not None]
        rate = [one for one in (self.max_rate, limits.max_rate) if one is not None]
        return Pace(max(conflate, default=None), min(rate, default=None), self.per)


FREE: Final = Pace()
"""All, as they come."""


def is_in_share(fields: Mapping[str, Any], per: Sequence[str], share: float) -> bool:
    """Is the thing that an event is about in the share? A larger share has those of a smaller."""
    return filter_sample.is_in_share([fields.get(name) for name in per], share)


def parse_devices(found: Sequence[object]) -> frozenset[str]:
    """Raises ValueError, which says which one is wrong."""
    if not 0 < len(found) <= DEVICES_MAX:
        raise ValueError(f"{len(found)} devices, expected 1 to {DEVICES_MAX}")
    for number, name in enumerate(found, 1):
        if not isinstance(name, str) or not is_device(name):
            raise ValueError(
                f"device {number}, {str(name)[:40]!r}: expected 1-64 of A-Z a-z 0-9 . _ -"
            )
    return frozenset(map(str, found))


def parse_sample(text: str) -> float:
    """A share such as 0.1 or 10%; raises ValueError."""
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ValueError(f"{text[:40]!r}: expected a share such as 0.1 or 10%")
    return share


def parse_per(text: str) -> tuple[str, ...]:
    """Fields with commas between; raises ValueError."""
    names = tuple(part.strip() for part in text.split(","))
    if len(names) > PER_MAX or not all(map(FIELD_PATTERN.fullmatch, names)):
        raise ValueError(
            f"{text[:40]!r}: expected up to {PER_MAX} names of fields with commas between"
        )
    return names


def parse_conflate(text: str) -> int:
    """Milliseconds from one event of a thing to its next; raises ValueError."""
    low, high = CONFLATE_MS
    if text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= high:
        return int(text)
    raise ValueError(f"{text[:40]!r}: expected whole milliseconds from {low} to {high}")


def parse_rate(text: str) -> float:
    """Events a second; raises ValueError."""
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate <= RATE_MAX:
        raise ValueError(f"{text[:40]!r}: expected events a second, above 0 to {RATE_MAX}")
    return rate
