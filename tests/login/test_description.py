"""A provider's description: what is taken from it, and what is refused."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from edgewake.cloud.login.description import Description, parse
from edgewake.cloud.login.failures import WrongProvider

ISSUER = "https://id.example.org"
NEEDED = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "jwks_uri": f"{ISSUER}/keys",
}
FOUND = Description(
    f"{ISSUER}/authorize", f"{ISSUER}/token", f"{ISSUER}/keys", "", "", "", names_itself=False
)


def parsed(**more: Any) -> Description:
    return parse(orjson.dumps(NEEDED | more), ISSUER)


def test_what_a_provider_writes_as_null_it_does_not_have() -> None:
    """Some write all members that there are: theirs was an error of ours, or refused."""
    nulls = dict.fromkeys(
        ("code_challenge_methods_supported", "userinfo_endpoint", "end_session_endpoint")
    )
    assert parsed() == parsed(**nulls) == FOUND


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"issuer": ISSUER + "/"}, "calls itself"),
        ({"code_challenge_methods_supported": ["plain"]}, "PKCE"),
        ({"code_challenge_methods_supported": 5}, "PKCE"),
        ({"token_endpoint": None}, "token_endpoint"),
        ({"userinfo_endpoint": "http://id.example.org/me"}, "userinfo_endpoint"),
    ],
)
def test_a_provider_that_cannot_be_trusted_is_refused(more: dict[str, Any], why: str) -> None:
    with pytest.raises(WrongProvider, match=why):
        parsed(**more)
