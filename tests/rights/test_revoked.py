"""What is taken back before it expires."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.cloud.rights.config import RightsConfig
from edgewake.cloud.rights.principal import Kind, Proof
from edgewake.cloud.rights.revoked import parse
from edgewake.cloud.rights.rights import End, Rights
from edgewake.cloud.rights.tokens import Refused
from edgewake.protocol.errors import ConfigError
from tests.push.builders import ManualClock
from tests.rights.endings import KEYS, ROLES, Ended, issuer
from tests.rights.forge import ISSUER, NOW_S, Maker, key_set, write


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(round(NOW_S * 1000))


async def test_what_is_taken_back(clock: ManualClock, tmp_path: Path) -> None:
    maker, path = Maker(), tmp_path / "revoked"
    write(path, "jti t9\n")
    keys = write(tmp_path / "keys.json", key_set(maker))
    rights = Rights(
        RightsConfig(
            roles=ROLES,
            issuers=(issuer(jwks_file=keys),),
            key_file=write(tmp_path / "keys", KEYS),
            revoked_file=path,
        ),
        clock,
    )
    with pytest.raises(Refused, match="revoked"):
        await rights.principal(maker.token(jti="t9"))
    ended = Ended(rights)
    held = [maker.token(jti="t1"), maker.token(jti="t2"), maker.token(sub="berta")]
    for token in (*held, b"everything-key-0001"):
        ended.watch(await rights.principal(token))
    write(path, "jti t2\n")
    assert ended.look() == [(f"{ISSUER}#anna", End.REVOKED)]
    write(path, "sub berta\nkey board # lost\n")
    assert sorted(ended.look()) == [("board", End.REVOKED), (f"{ISSUER}#berta", End.REVOKED)]
    with pytest.raises(Refused, match="revoked"):
        await rights.principal(held[2])
    await rights.principal(held[0])


@pytest.mark.parametrize(
    ("line", "revoked"),
    [
        ("sub https://id/#anna # left in May", {"https://id/#anna", "https://id/"}),
        ("sub bob#left the firm", {"bob#left the firm", "bob"}),
        ("sub bob#", {"bob#", "bob"}),
        ("sub bob\t# left", {"bob"}),
        ("# sub bob", set()),
    ],
)
def test_what_may_be_a_subject_or_a_comment_is_taken_back_as_both(
    line: str, revoked: set[str]
) -> None:
    """Which of them is meant nobody knows; with one alone somebody's tokens would open again."""
    found, subjects = parse(line), revoked | {"bob", "bob#", "https://id/", "anna"}
    assert {s for s in subjects if found.has(Proof(Kind.TOKEN, b"", subject=s))} == revoked
    found = parse(line.replace("sub", "jti"))
    assert {s for s in subjects if found.has(Proof(Kind.TOKEN, b"", token_id=s))} == revoked


@pytest.mark.parametrize(
    "line", ["sub bob# left the firm", "jti t9#\tlost", "key board#lost", "key board# lost"]
)
def test_a_hash_that_cannot_be_meant_so_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(ConfigError, match=r"line 2: is # part of it\? A comment stands behind a"):
        parse(f"sub anna\n{line}\n")
