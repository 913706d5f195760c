"""What a request to the HTTP intake asks for, decided from its head alone. Pure.

`POST /` with `application/json` (an object or a list of them) or `application/x-ndjson` (lines).
Pages in a browser of the device are kept out: they say `Origin`, or would have to ask before they
send JSON (Fetch, section 4.9).
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

KINDS: Final = frozenset({"application/json", "application/x-ndjson", "application/jsonl"})
KEY_CHARS_MAX: Final = 200
"""Characters of an Idempotency-Key."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request that may be taken."""

    one_way: bool
    """Answer before the readings are kept."""
    key: str | None
    """The sender's name for this request: sent twice it is taken once."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer in place of taking it."""

    status: int
    why: str


def wanted(
    method: str, path: str, headers: Mapping[str, str], token: str | None
) -> Wanted | Refusal:
    """What a request asks for. `headers`: names in lower case; `token`: what it has to show."""
    if path.partition("?")[0] != "/":
        return Refusal(404, "readings are posted to /")
    if method != "POST":
        return Refusal(405, "readings are posted")
    if "origin" in headers:
        return Refusal(403, "no page of a browser sends here")
    if token is not None and not _shows(headers.get("authorization", ""), token):
        return Refusal(401, "a bearer token is asked for")
    if headers.get("content-type", "").partition(";")[0].strip().lower() not in KINDS:
        return Refusal(415, f"expected one of {', '.join(sorted(KINDS))}")
    if headers.get("content-encoding", "").strip().lower() not in ("", "identity"):
        return Refusal(415, "expected no content coding")
    return asked_of(headers)


def asked_of(headers: Mapping[str, str]) -> Wanted | Refusal:
    """How a request wants to be answered, and its name. `headers`: names in lower case."""
    key = headers.get("idempotency-key")
    if key is not None and not 1 <= len(key) <= KEY_CHARS_MAX:
        return Refusal(400, f"Idempotency-Key: expected 1 to {KEY_CHARS_MAX} characters")
    # RFC 7240, section 2.
    preferred = {
        each.partition(";")[0].strip().lower() for each in headers.get("prefer", "").split(",")
    }
    return Wanted("respond-async" in preferred, key)


def _shows(authorization: str, token: str) -> bool:
    """The scheme in any letters, the token as it is (RFC 9110, section 11.1)."""
    scheme, _, shown = authorization.partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(shown.encode(), token.encode())
