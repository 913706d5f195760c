"""Verifies an ID token (OpenID Connect Core, 3.1.3.7). Pure.

It takes the token's text, the provider's keys and what was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from authlib.oidc.core import CodeIDToken
from joserfc.errors import JoseError

from edgewake.cloud.login.failures import Unusable
from edgewake.cloud.rights import tokens
from edgewake.cloud.rights.tokens import Issuer, Refused, UnknownKey


@dataclass(frozen=True, slots=True)
class Word:
    """What the provider says of a person."""

    claims: Mapping[str, Any]
    until: int
    """ms: when this word expires."""


def check(text: str, issuer: Issuer, *, nonce: str | None, access_token: str, now_s: float) -> Word:
    """What it proves. `nonce`: of the login that asked for it; None where a session is renewed.

    Raises Unusable, and UnknownKey where the provider has another key by now, perhaps.
    """
    try:
        token = tokens.read(text.encode("ascii", "replace"))
        _, expires_s = tokens.verify(token, issuer, now_s=now_s)
    except UnknownKey:
        raise
    except Refused as error:
        raise Unusable(f"ID {error}") from error
    asked = {
        "nonce": nonce,
        "client_id": issuer.config.audience,
        "access_token": access_token,
    }
    try:
        CodeIDToken(dict(token.claims), dict(token.header), None, asked).validate(
            int(now_s), int(issuer.config.leeway_s)
        )
    except JoseError as error:
        raise Unusable(f"ID token: {error}") from error
    return Word(token.claims, int(expires_s * 1000))
