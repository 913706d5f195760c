"""What a provider leaves out or writes as null: JSON has both for what is not there."""

from __future__ import annotations

import base64
import hashlib
import secrets
from pathlib import Path
from typing import Any

import pytest

from edgewake.cloud.login.failures import Unusable
from edgewake.cloud.login.provider import Provider
from edgewake.protocol.clock import SystemClock
from tests.login.forged import Forged, config_of
from tests.rights.forge import write


def provider_of(forged: Forged, folder: Path, **more: Any) -> Provider:
    write(folder / "session.key", secrets.token_hex(32))
    return Provider(config_of(forged, folder / "session.key", **more), SystemClock())


def half_hash(text: str) -> str:
    """`at_hash` of an access token (OpenID Connect Core, 3.1.3.6)."""
    half = hashlib.sha256(text.encode()).digest()[:16]
    return base64.urlsafe_b64encode(half).rstrip(b"=").decode()


@pytest.mark.parametrize("changes", [{"access_token": None}, {"access_token": ""}])
async def test_no_access_token_is_no_token_of_that_name(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    """`at_hash` is of the token that was given elsewhere; of none nothing can be compared."""
    async with Forged(
        nonce="n", answered=changes, claims={"at_hash": half_hash("elsewhere")}
    ).running() as forged:
        given = await provider_of(forged, tmp_path).exchange(code="c", nonce="n", verifier="v")
    assert given.word.claims["sub"] == "ann"


@pytest.mark.parametrize("changes", [{"access_token": None}, {"access_token": ""}])
async def test_userinfo_is_not_asked_without_an_access_token(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    async with Forged(nonce="n", answered=changes).running() as forged:
        forged.described["userinfo_endpoint"] = f"{forged.issuer}/userinfo"
        provider = provider_of(forged, tmp_path, groups_claim="roles")
        with pytest.raises(Unusable, match="access_token: missing"):
            await provider.exchange(code="c", nonce="n", verifier="v")
        assert "/userinfo" not in forged.asked


@pytest.mark.parametrize("missing", [None, ""])
async def test_a_null_id_token_is_a_missing_one(tmp_path: Path, missing: str | None) -> None:
    async with Forged(nonce="n", answered={"id_token": missing}).running() as forged:
        provider = provider_of(forged, tmp_path)
        with pytest.raises(Unusable, match="id_token: missing"):
            await provider.exchange(code="c", nonce="n", verifier="v")
        given = await provider.renew("r", "ann")
    assert given.word.claims == {"sub": "ann"}, "a session goes on without a new word"


async def test_a_null_refresh_token_is_none(tmp_path: Path) -> None:
    async with Forged(nonce="n", answered={"refresh_token": None}).running() as forged:
        given = await provider_of(forged, tmp_path).exchange(code="c", nonce="n", verifier="v")
    assert given.refresh == ""
