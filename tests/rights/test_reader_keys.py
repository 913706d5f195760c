"""The key file of readers."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.cloud.rights.config import (
    RightsConfig,
)
from edgewake.cloud.rights.principal import Action
from edgewake.cloud.rights.rights import End, Rights
from edgewake.cloud.rights.tokens import Refused
from edgewake.protocol.errors import ConfigError
from tests.push.builders import ManualClock
from tests.rights.endings import KEYS, ROLES, Ended
from tests.rights.forge import NOW_S, write


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(round(NOW_S * 1000))


async def test_keys_of_a_file(clock: ManualClock, tmp_path: Path) -> None:
    path = write(tmp_path / "keys", KEYS)
    rights = Rights(RightsConfig(roles=ROLES, key_file=path), clock)
    assert rights.anonymous is None
    board = await rights.principal(b"everything-key-0001")
    anna = await rights.principal(b"annas-own-key-000002")
    assert board.scope(Action.READ, "s") is None
    scope = anna.scope(Action.READ, "s")
    assert scope is not None
    assert scope.sees("car-8")
    assert not scope.sees("car-9")
    with pytest.raises(Refused):
        await rights.principal(b"annas-own-key-000003")
    ended = Ended(rights)
    ended.watch(board)
    ended.watch(anna)
    assert ended.look() == []
    write(path, KEYS.replace("car-7 car-8", "car-7"))
    assert ended.look() == [("anna", End.REVOKED)]
    write(path, "anna cars")
    assert ended.look() == [], "a file that cannot be used changes nothing"
    write(path, KEYS.replace("board ", "# board"))
    assert ended.look() == [("board", End.REVOKED)]
    with pytest.raises(Refused):
        await rights.principal(b"everything-key-0001")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("anna cars", "expected NAME ROLE KEY"),
        ("anna trucks annas-own-key-000002", "role 'trucks'"),
        ("anna cars annas-own-key-000002", "claim 'device'"),
        ("anna cars annas-own-key-000002 car-*", "claim 'device'"),
        ("anna guest short", "key: expected at least 16"),
        ("anna guest annas-own-key-000002#x", "key: expected no #"),
        ("an/na guest annas-own-key-000002", "name"),
        ("board guest annas-own-key-000002", "expected each once"),
        ("anna guest everything-key-0001", "expected each once"),
    ],
)
def test_a_line_that_is_wrong(line: str, what: str, clock: ManualClock, tmp_path: Path) -> None:
    path = write(tmp_path / "keys", KEYS.replace("anna", "berta") + line)
    with pytest.raises(ConfigError, match=what) as refused:
        Rights(RightsConfig(roles=ROLES, key_file=path), clock)
    assert "annas-own-key" not in str(refused.value)
