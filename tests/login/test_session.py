"""A person's session: what the provider said, and until when that holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgewake.cloud.login import session
from edgewake.cloud.login.config import LoginConfig
from edgewake.cloud.login.failures import Unusable
from edgewake.cloud.login.session import GROUPS_MAX, NAME_CHARS_MAX, Session

NOW = 1_790_000_000_000
CLAIMS: dict[str, Any] = {"sub": "p1", "name": "Ada  Lovelace", "groups": ["ops"], "site": "north"}


def config(**more: Any) -> LoginConfig:
    return LoginConfig(
        issuer="https://id.example.org",
        client_id="edgewake",
        url="https://ops.example.org",
        session_key_file=Path("keys"),
        **{"claims": ("site",), "life_s": 1000, "renew_s": 100, **more},
    )


def begun(refresh: str = "r1", token_until: int = NOW + 60_000, **claims: Any) -> Session:
    return session.begun(
        config(),
        {**CLAIMS, **claims},
        session_id="s1",
        refresh=refresh,
        token_until=token_until,
        now=NOW,
    )


def test_a_session_that_can_be_renewed_lives_as_configured() -> None:
    found = begun()
    assert (found.until, found.fresh_until) == (NOW + 1_000_000, NOW + 100_000)
    assert (found.name, found.groups, found.claims) == ("Ada Lovelace", ("ops",), {"site": "north"})


def test_one_that_cannot_be_renewed_ends_with_the_provider_s_word() -> None:
    found = begun(refresh="")
    assert (found.until, found.fresh_until) == (NOW + 60_000, NOW + 60_000)


def test_it_is_read_as_it_was_written() -> None:
    assert session.parse(session.text_of(begun())) == begun()


def test_renewed_it_has_what_the_provider_says_now_and_lives_no_longer() -> None:
    later = NOW + 950_000
    found = session.renewed(
        config(), begun(), {"sub": "p1", "groups": "dev"}, refresh="", now=later
    )
    assert (found.groups, found.claims, found.name) == (("dev",), {}, "p1")
    assert (found.until, found.fresh_until, found.checked_at) == (
        NOW + 1_000_000,
        NOW + 1_000_000,
        later,
    )
    assert found.refresh == "r1"


def test_another_person_s_word_renews_nothing() -> None:
    with pytest.raises(Unusable, match="another person"):
        session.renewed(config(), begun(), {"sub": "p2"}, refresh="r2", now=NOW)


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"sub": ""}, "sub"),
        ({"sub": 7}, "sub"),
        ({"sub": "x" * 256}, "sub"),
        ({"groups": [1]}, "groups"),
        ({"groups": {"a": 1}}, "groups"),
        ({"groups": ["g"] * (GROUPS_MAX + 1)}, "at most"),
    ],
)
def test_claims_that_cannot_be_used_are_refused(claims: dict[str, Any], why: str) -> None:
    with pytest.raises(Unusable, match=why):
        begun(**claims)


def test_a_person_is_named_by_what_the_provider_says_first() -> None:
    assert begun(name=" ", preferred_username="ada").name == "ada"
    assert begun(name="x" * 1000).name == "x" * NAME_CHARS_MAX


def test_roles_come_from_groups_each_once_and_everybody_s_too() -> None:
    groups = {"ops": "operate", "dev": "read", "*": "read"}
    roles = config(groups=groups)
    assert session.roles_of(roles, ["dev", "ops"]) == ("operate", "read")
    assert session.roles_of(roles, []) == ("read",)
    assert session.roles_of(config(groups={"ops": "operate"}), ["dev"]) == ()
