"""Reads a provider's description: /.well-known/openid-configuration. Pure.

See OpenID Connect Discovery.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import orjson

from edgewake.cloud.login.failures import WrongProvider
from edgewake.cloud.rights.config import checked_url

PATH: Final = "/.well-known/openid-configuration"


@dataclass(frozen=True, slots=True)
class Description:
    """Its addresses; empty for what it does not have, or writes as null."""

    authorize: str
    token: str
    keys: str
    userinfo: str
    revoke: str
    log_out: str
    names_itself: bool
    """Does it put `iss` into its answers (RFC 9207)?"""


def parse(body: bytes, issuer: str) -> Description:
    """Raises WrongProvider."""
    try:
        found = orjson.loads(body)
    except ValueError as error:
        raise WrongProvider(f"{PATH}: expected JSON") from error
    if not isinstance(found, dict):
        raise WrongProvider(f"{PATH}: expected a JSON object")
    if found.get("issuer") != issuer:
        raise WrongProvider(
            f"it calls itself {str(found.get('issuer'))[:200]!r}, and issuer = {issuer!r} is "
            "configured: they must be the same, character for character"
        )
    methods = found.get("code_challenge_methods_supported")
    if methods is not None and not (isinstance(methods, list) and "S256" in methods):
        raise WrongProvider("it cannot do PKCE with S256")
    values = {
        name: _address(found, key, is_needed=is_needed)
        for name, key, is_needed in (
            ("authorize", "authorization_endpoint", True),
            ("token", "token_endpoint", True),
            ("keys", "jwks_uri", True),
            ("userinfo", "userinfo_endpoint", False),
            ("revoke", "revocation_endpoint", False),
            ("log_out", "end_session_endpoint", False),
        )
    }
    names_itself = found.get("authorization_response_iss_parameter_supported") is True
    return Description(**values, names_itself=names_itself)


def _address(found: dict[str, object], key: str, *, is_needed: bool) -> str:
    text = found.get(key) or ""
    if text == "" and not is_needed:
        return ""
    try:
        return checked_url(str(text))
    except ValueError as error:
        raise WrongProvider(f"{key}: {error}") from error
