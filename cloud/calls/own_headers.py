"""Headers that an endpoint's owner has sent along with each call, e.g. `Authorization`.

They go to the owner's endpoint alone, and are kept sealed as its secret is. An owner cannot set
headers that belong to the connection, or those that Edgewake itself sends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from edgewake.cloud.calls.endpoint import EndpointRefused
from edgewake.cloud.calls.sealing import Endpoint

HEADERS_MAX: Final = 8
"""Headers of one endpoint: a few that a service asks for."""
NAME_CHARS_MAX: Final = 64
BYTES_MAX: Final = 2048
"""Bytes of all of them together, as they are sent: a token of 1.5 KB and some words. They are kept
in every lease."""

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?")

HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""They belong to one connection (RFC 9110, 7.6.1)."""
OURS: Final = frozenset(
    {
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "forwarded",
        "host",
        "user-agent",
        "via",
        "x-real-ip",
    }
)
"""They describe the body, the receiver and the sender."""
OUR_PREFIXES: Final = ("webhook-", "x-forwarded-", "edgewake-")
"""They carry the signature and the sender's address."""


def check(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers by their names in small letters. Raises EndpointRefused, which shows no value."""
    if len(headers) > HEADERS_MAX:
        raise EndpointRefused(f"headers: {len(headers)}, expected at most {HEADERS_MAX}")
    found: dict[str, str] = {}
    for name, value in headers.items():
        lower = name.lower()
        why = _wrong(lower, value) or ("it is there twice" if lower in found else None)
        if why is not None:
            raise EndpointRefused(f"header {name[:NAME_CHARS_MAX]!r}: {why}")
        found[lower] = value
    size = sum(len(name) + len(value) + len(": \r\n") for name, value in found.items())
    if size > BYTES_MAX:
        raise EndpointRefused(f"headers: {size} bytes together, expected at most {BYTES_MAX}")
    return found


def after(asked: Mapping[str, str] | None, url: str, before: Endpoint | None) -> Mapping[str, str]:
    """The headers from now on; None keeps those of before. Raises EndpointRefused.

    They are kept for the same address alone: a new one would be shown them.
    """
    if asked is not None:
        return check(asked)
    is_same = before is not None and before.url == url
    return before.headers if before is not None and is_same else {}


def _wrong(name: str, value: str) -> str | None:
    if len(name) > NAME_CHARS_MAX or _NAME.fullmatch(name) is None:
        return f"expected a name of at most {NAME_CHARS_MAX} letters, digits and hyphens"
    if name in HOP_BY_HOP:
        return "it belongs to one connection, and is not yours to set"
    if name in OURS or name.startswith(OUR_PREFIXES):
        return "Edgewake itself sends it; leave it out"
    if _VALUE.fullmatch(value) is None:
        return "expected a value of visible ASCII, blanks only between"
    return None
