"""Which `Host` a request may name: the defence of a server without a key against DNS rebinding.

A page of a stranger, open in somebody's browser, can make its own host name resolve to 127.0.0.1
and read us as its own origin. Such a request still names the stranger's host. So every part answers
only to names that are its own:

    127.0.0.1, [::1], any other IP address    an address cannot be made to resolve elsewhere
    localhost, *.localhost                    RFC 6761: always the loopback
    this machine's host name                  how the others of a private network call it
    `public_names` of the configuration       e.g. readings.example.org, behind a proxy that passes
                                              Host on

Anything else is answered 421 (RFC 9110, 15.5.20). A request without Host does not come from a
browser and is let through.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from edgewake.cloud.web.problem import PROBLEM_TYPE, problem_body

SHOWN_MAX: Final = 80
"""Characters of a refused name that are repeated in the answer."""


def is_loopback(host: str) -> bool:
    """Does only this machine reach it?"""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_local(scope: Scope) -> bool:
    """Did the request come from this machine, to an address that no other machine reaches?"""
    ends = (scope.get("client"), scope.get("server"))
    return all(end is not None and is_loopback(end[0]) for end in ends)


class HostCheck:
    """ASGI: see the module.

    `public_names` are compared without regard to case; a port is ignored.
    """

    def __init__(
        self, app: ASGIApp, public_names: Iterable[str] = (), *, allows_bare_names: bool = False
    ) -> None:
        """`allows_bare_names`: accept names without a dot, too.

        A private network gives them to its machines, and no stranger can have one.
        """
        self._app = app
        self._allows_bare_names = allows_bare_names
        self._names = frozenset(
            name.lower().rstrip(".") for name in (*public_names, socket.gethostname())
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hosts = [value for name, value in scope.get("headers", ()) if name == b"host"]
        refused = next((host for host in hosts if not self.allows(host)), None)
        if refused is None:
            await self._app(scope, receive, send)
        else:
            expected = "expected an IP address, localhost or a name in public_names"
            detail = f"Host {refused.decode('latin-1')[:SHOWN_MAX]!r}: {expected}"
            await Response(problem_body(421, "host", detail), 421, None, PROBLEM_TYPE)(
                scope, receive, send
            )

    def allows(self, host: bytes) -> bool:
        """May a request name this host?"""
        name = _without_port(host.decode("latin-1")).lower().rstrip(".")
        if self._allows_bare_names and name and "." not in name:
            return True
        return (
            name in self._names
            or name == "localhost"
            or name.endswith(".localhost")
            or _is_address(name)
        )


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
