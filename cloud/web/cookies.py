"""Reads a cookie of ours beside those of others.

All ports and programs of a host share their cookies, and a proxy's gate adds its own. Python's
`SimpleCookie` gives up all of them for one that is written as it does not expect: `prefs={"a": 1}`,
a name without a value. Browsers send such, so each is read by itself here (RFC 6265, 5.2).
"""

from __future__ import annotations

from starlette.requests import cookie_parser
from starlette.types import Scope


def cookie_of(scope: Scope, name: str) -> str | None:
    """What the browser holds under this name; None for nothing."""
    text = b"; ".join(value for key, value in scope["headers"] if key == b"cookie")
    return cookie_parser(text.decode("latin-1")).get(name)
