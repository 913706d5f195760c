"""What one client may take of a bound that all clients share. Pure.

    share      an address holds at most this part of the bound
    reserve    the last fifth of the bound is for addresses that hold little, so that a few greedy
               ones leave room for everybody else

A client is an address: an IPv4 address, or the 64 bits of an IPv6 address that one network is
given. Behind a proxy it is the last address in `X-Forwarded-For` that is not a proxy of ours; any
other program may write there what it likes.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator
from starlette.requests import HTTPConnection

SHARE_DEFAULT: Final = 0.25
"""A fourth: an office behind one address is served, and three more like it are."""
RESERVE: Final = 0.2
"""The part of a bound that is kept for addresses that hold little."""
LITTLE: Final = 0.1
"""The part of its own share below which a client may use the reserve."""
IPV6_PREFIX: Final = 64
"""Bits of an IPv6 address that name a client's network (RFC 6177); it chooses the others as it
likes."""
UNKNOWN: Final = "unknown"
"""The client of a connection without an address, e.g. of a Unix socket."""
HOPS_MAX: Final = 16
"""Addresses of `X-Forwarded-For` that are looked at, from the last one back."""
KNOWN_MAX: Final = 4096
"""Addresses whose reading is remembered: the same ones ask again and again."""
ADDRESS_CHARS_MAX: Final = 100
"""Characters of an address with its zone; a longer text names nobody, and is not remembered."""

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound on `what`: `most` at once for all clients; `share` is one client's part."""

    what: str
    most: int
    share: float = SHARE_DEFAULT

    @property
    def own_max(self) -> int:
        """What one client may hold; one at the least."""
        return max(1, int(self.most * self.share))

    @property
    def reserve(self) -> int:
        """What is kept for clients that hold little; nothing where one client may hold all."""
        return int(self.most * RESERVE) if self.share < 1 else 0

    def refusal(self, *, total: int, held: int) -> str | None:
        """Why a client that holds `held` of `total` gets no more; None where it does."""
        if total >= self.most:
            return f"this server already serves {total} {self.what}"
        if held >= self.own_max:
            return f"you hold {held} {self.what} of this server already, as many as one client may"
        is_little = held < max(1, int(self.own_max * LITTLE))
        if total >= self.most - self.reserve and not is_little:
            return f"this server has few {self.what} left, for clients that hold fewer than you"
        return None


class Held:
    """Who holds how much of one bound."""

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self._of: Counter[str] = Counter()

    def take(self, client: str) -> str | None:
        """One more; why not, or None where it is given, until `give_back`."""
        refused = self._bound.refusal(total=self._of.total(), held=self._of[client])
        if refused is None:
            self._of[client] += 1
        return refused

    def give_back(self, client: str) -> None:
        """Give back one of the client's shares."""
        self._of[client] -= 1
        if self._of[client] <= 0:
            del self._of[client]


def _network(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        raise ValueError(f"{text!r}: expected an address or a network such as 10.0.0.0/8") from None
    return text


NetworkText: TypeAlias = Annotated[str, AfterValidator(_network)]
"""An address or a network, for configurations."""


class Clients:
    """Says who a request comes from.

    `trusted`: the proxies in front of us, as addresses or networks.
    """

    def __init__(self, trusted: Iterable[str] = ()) -> None:
        self._trusted: tuple[Network, ...] = tuple(map(ipaddress.ip_network, trusted))

    def of(self, peer: str | None, forwarded: Sequence[str] = ()) -> str:
        """The client, from the connection's other side and the values of `X-Forwarded-For`."""
        address = _address(peer)
        if address is None:
            return UNKNOWN
        hops = [hop.strip() for value in forwarded for hop in value.split(",")]
        for hop in reversed(hops[-HOPS_MAX:]):
            if not self._is_trusted(address):
                break
            before = _address(hop)
            if before is None:  # a proxy of ours does not know it, or hides it
                break
            address = before
        return _client(address)

    def of_request(self, http: HTTPConnection) -> str:
        """The client of a request."""
        return self.of(
            http.client.host if http.client else None, http.headers.getlist("x-forwarded-for")
        )

    def is_proxy(self, peer: str | None) -> bool:
        """Is it a proxy of ours, through which many clients come?"""
        address = _address(peer)
        return address is not None and self._is_trusted(address)

    def _is_trusted(self, address: Address) -> bool:
        return any(address in network for network in self._trusted)


def _address(text: str | None) -> Address | None:
    return _read(text) if text and len(text) <= ADDRESS_CHARS_MAX else None


@lru_cache(KNOWN_MAX)
def _read(text: str) -> Address | None:
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


@lru_cache(KNOWN_MAX)
def _client(address: Address) -> str:
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(ipaddress.ip_network((address, IPV6_PREFIX), strict=False))
