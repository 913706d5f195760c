"""Decides which endpoints may be called: the guard against calls into our own network (SSRF).

`parse` looks at the URL alone; `resolve` asks for every address of the name, refuses when *any* of
them is not a public one, and returns those to connect to. Both run before every call, and the
caller connects to these very addresses with the name's SNI and Host, so that a name which changes
its answer between check and use gains nothing. Hosts in `allow_hosts` are exempt: they may have any
address, any port and plain http. (Standard Webhooks, "Server side request forgery"; RFC 6890, RFC
4291.)
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from edgewake.protocol.errors import RemoteError, Unavailable

PORTS: Final = frozenset({443, 8443})
URL_CHARS_MAX: Final = 2048
"""Characters of an endpoint's address; it is kept in every lease. Over it: refused."""
RESOLVE_TIMEOUT_S: Final = 5.0
ADDRESSES_MAX: Final = 4
"""Addresses of one name that are tried in one call; all that a name has are checked."""

_NOT_PUBLIC4: Final = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"))
"""Protocol assignments and the 6to4 relay, of which Python 3.11 counts parts as global."""
_UNICAST6: Final = IPv6Network("2000::/3")
_NOT_PUBLIC6: Final = tuple(
    IPv6Network(net)
    # Protocol assignments and Teredo, documentation, 6to4.
    for net in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)

Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""(host, port) → every address of it as text; raises OSError."""


class EndpointRefused(RemoteError):
    """An endpoint that is not called."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A URL that may be called if its addresses are public, or always when it is `exempt`."""

    scheme: str
    host: str
    port: int
    target: str
    """Path and query."""
    exempt: bool

    @property
    def netloc(self) -> str:
        """The Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = 443 if self.scheme == "https" else 80
        return host if self.port == default else f"{host}:{self.port}"


def parse(url: str, allow_hosts: Collection[str]) -> Endpoint:
    """Check the URL itself; raises EndpointRefused."""
    if len(url) > URL_CHARS_MAX or not url.isascii() or any(c <= " " or c == "\\" for c in url):
        raise EndpointRefused(
            f"endpoint: expected at most {URL_CHARS_MAX} ASCII characters without blanks or "
            "backslashes"
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise EndpointRefused(f"endpoint: {error}") from error
    host = (parts.hostname or "").rstrip(".")
    if not host or "%" in host:
        raise EndpointRefused("endpoint: a host is missing")
    if "@" in parts.netloc:
        raise EndpointRefused("endpoint: a user name in the address is not allowed")
    exempt = host in {name.lower() for name in allow_hosts}
    if parts.scheme not in ({"https", "http"} if exempt else {"https"}):
        raise EndpointRefused(f"endpoint: scheme {parts.scheme!r}, expected https")
    port = port if port is not None else {"https": 443, "http": 80}[parts.scheme]
    if port not in PORTS and not exempt:
        raise EndpointRefused(f"endpoint: port {port}, expected 443 or 8443")
    return Endpoint(
        parts.scheme,
        host,
        port,
        (parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        exempt,
    )


def is_public(address: str) -> bool:
    """Is it an address of the public Internet?

    One that reaches an inner network by translation or tunnel is not.
    """
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return _is_public4(ip) if isinstance(ip, IPv4Address) else _is_public6(ip)


def _is_public4(ip: IPv4Address) -> bool:
    return (
        ip.is_global
        and not ip.is_multicast
        and not ip.is_reserved
        and not any(ip in net for net in _NOT_PUBLIC4)
    )


def _is_public6(ip: IPv6Address) -> bool:
    # Only global unicast: that leaves out mapped (::ffff:), compatible (::), NAT64 (64:ff9b::),
    # unique local, link local, multicast.
    return ip in _UNICAST6 and ip.is_global and not any(ip in net for net in _NOT_PUBLIC6)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


async def system_resolver(host: str, port: int) -> Sequence[str]:
    """Resolve a name by the machine's resolver.

    It also reads forms such as 127.1 and 0x7f.1, which then fail as what they are.
    """
    if _is_address(host):
        return [host]  # without a thread
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


async def resolve(endpoint: Endpoint, resolver: Resolver = system_resolver) -> Sequence[str]:
    """The addresses to connect to, in the resolver's order.

    Raises EndpointRefused when any address is not public, Unavailable without an address.
    """
    try:
        async with asyncio.timeout(RESOLVE_TIMEOUT_S):
            addresses = list(dict.fromkeys(await resolver(endpoint.host, endpoint.port)))
    except (OSError, UnicodeError) as error:  # TimeoutError is an OSError
        raise Unavailable(
            f"endpoint {endpoint.host}: the name does not resolve: {error}"
        ) from error
    if not addresses:
        raise Unavailable(f"endpoint {endpoint.host}: no address")
    if not endpoint.exempt and not all(map(is_public, addresses)):
        raise EndpointRefused(f"endpoint {endpoint.host}: not a public address")
    return addresses[:ADDRESSES_MAX]
