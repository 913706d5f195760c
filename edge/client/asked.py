"""What a follower asks a server for: where, and with which words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import quote

from edgewake.protocol.leases.lease import Subscription

DEVICES_MAX: Final = 10_000
"""Devices that one request may name."""

Words: TypeAlias = dict[str, str | int | float | list[str]]


@dataclass(frozen=True, slots=True)
class Published:
    """A publication: streams that an operator put together under a name."""

    name: str
    where: str | None = None
    select: str | None = None

    @property
    def streams(self) -> tuple[str, ...]:
        """What stands for its streams, which only the server knows."""
        return (self.name,)


@dataclass(frozen=True, slots=True)
class Options:
    """What of it, and at what pace. Raises ValueError."""

    devices: Sequence[str] | None = None
    """These alone, up to 10,000: sent in the body of a POST."""
    sample: float | None = None
    """A share of all devices, the same ones everywhere."""
    conflate_ms: int | None = None
    """Only the latest of each device, or group, is sent once in this time, ms."""
    max_rate: float | None = None
    """Events a second at most."""
    per: Sequence[str] = ()
    """For sample and conflation: the fields that tell what is the same thing."""
    slow: str | None = None
    """What the server does when this reads too slowly: wait, conflate, skip or end."""
    slow_after_s: int | None = None
    """Seconds before that; None: the server's own."""

    def __post_init__(self) -> None:
        """See above."""
        if self.devices is not None and not 0 < len(self.devices) <= DEVICES_MAX:
            raise ValueError(f"{len(self.devices)} devices: expected 1 to {DEVICES_MAX}")

    def words(self) -> Words:
        """By the server's names; devices are for a body alone."""
        found = {
            "sample": self.sample,
            "conflate": self.conflate_ms,
            "max_rate": self.max_rate,
            "per": ",".join(self.per) or None,
            "slow": self.slow,
            "slow_after": self.slow_after_s,
        }
        return {name: value for name, value in found.items() if value is not None}


ALL: Final = Options()
"""All of it, as it comes."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to a server."""

    method: str
    path: str
    params: Sequence[tuple[str, str | int | float | bool | None]]
    body: Words | None = None


def asked(
    wanted: Subscription | Published, options: Options, start: str, on_gap: str | None
) -> Asked:
    """The request for an event stream. `start` counts where the cursor lacks a stream, too."""
    filters = (("where", wanted.where), ("select", wanted.select))
    words: Words = {name: value for name, value in filters if value is not None}
    words |= options.words() | {"from": start}
    if on_gap is not None:
        words["on_gap"] = on_gap
    several: list[str] = []
    if isinstance(wanted, Published):
        path = f"/v1/publications/{quote(wanted.name, safe='')}/events"
    elif len(wanted.streams) == 1:
        path = f"/v1/streams/{quote(wanted.streams[0], safe='')}/events"
    else:
        path, several = "/v1/events", list(wanted.streams)
    if options.devices is None:
        told = [(name, value) for name, value in words.items() if not isinstance(value, list)]
        return Asked("GET", path, [*(("stream", name) for name in several), *told])
    body = words | {"devices": list(options.devices)}
    return Asked("POST", path, (), body | {"streams": several} if several else body)
