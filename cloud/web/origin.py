"""Checks that our own page makes a request: a cookie comes along with any page's request."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit


def is_from_own_page(headers: Mapping[bytes, bytes]) -> bool:
    """Does a page of ours make the request?

    `Origin` says it, and `Sec-Fetch-Site` where the browser sends it.
    """
    try:
        origin = urlsplit(headers.get(b"origin", b"").decode("latin-1"))
    except ValueError:  # half an IPv6 address
        return False
    is_ours = origin.scheme in ("http", "https") and origin.netloc.encode("latin-1") == headers.get(
        b"host"
    )
    return is_ours and headers.get(b"sec-fetch-site", b"same-origin") == b"same-origin"
