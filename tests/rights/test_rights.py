"""Who somebody is, and when that holds no longer: with a clock that is told, real files, and an
issuer that does as it likes.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from edgewake.cloud.rights.config import (
    ANYBODY_CONFIG,
    EVERYTHING,
    DeviceRule,
    GrantConfig,
    RightsConfig,
    RoleConfig,
    checked,
)
from edgewake.cloud.rights.principal import Action
from edgewake.cloud.rights.rights import CLOSED_MAX, CREDENTIAL_BYTES_MAX, End, Rights
from edgewake.cloud.rights.tokens import Refused
from edgewake.protocol import config as config_file
from edgewake.protocol.errors import ConfigError
from tests.push.builders import ManualClock
from tests.rights.endings import KEYS, ROLES, Ended, issuer
from tests.rights.forge import ISSUER, NOW_S, Maker, key_set, write


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(round(NOW_S * 1000))


async def test_a_token_expires_and_ends_what_is_open(clock: ManualClock, tmp_path: Path) -> None:
    maker = Maker()
    path = write(tmp_path / "keys.json", key_set(maker))
    rights = Rights(
        RightsConfig(roles=ROLES, issuers=(issuer(jwks_file=path, leeway_s=0.0),)), clock
    )
    short, long = maker.token(exp=NOW_S + 10), maker.token(exp=NOW_S + 20, sub="berta")
    ended = Ended(rights)
    for token in (short, long):
        ended.watch(await rights.principal(token))
        ended.watch(await rights.principal(token))
    clock.advance(9.9)
    assert ended.look() == []
    clock.advance(0.1)
    assert ended.look() == [(f"{ISSUER}#anna", End.EXPIRED)] * 2
    with pytest.raises(Refused, match="expired"):
        await rights.principal(short)
    clock.advance(10)
    assert ended.look() == [(f"{ISSUER}#berta", End.EXPIRED)] * 2
    assert ended.look() == []


async def test_a_right_that_ends_while_it_is_being_used_for_the_first_time(
    clock: ManualClock, tmp_path: Path
) -> None:
    path = write(tmp_path / "keys", KEYS)
    rights = Rights(RightsConfig(roles=ROLES, key_file=path), clock)
    anna = await rights.principal(b"annas-own-key-000002")
    write(path, KEYS.replace("anna ", "# anna"))
    ended = Ended(rights)
    assert ended.look() == []
    ended.watch(anna)
    await asyncio.sleep(0)
    assert ended.said == [("anna", End.REVOKED)]


async def test_what_a_device_follows_ends_when_its_bridge_may_not_ask_for_it(
    clock: ManualClock, tmp_path: Path
) -> None:
    line = "bridge bridge bridges-own-key-0001 bus-1 bus-2"
    path = write(tmp_path / "keys", line)
    config = RightsConfig(
        roles={
            "bridge": RoleConfig(
                grants=(GrantConfig(actions=(Action.FEED,), devices=("$device",)),)
            ),
        },
        devices=(DeviceRule(role=EVERYTHING),),
        key_file=path,
    )
    rights = Rights(config, clock)
    bridge = await rights.principal(b"bridges-own-key-0001")
    assert not bridge.may(Action.READ, "s"), "it asks for devices, not for itself"
    ended = Ended(rights)
    devices = [rights.as_device(bridge, name) for name in ("bus-1", "bus-2", "bus-3")]
    assert [device.may(Action.READ, "s") for device in devices] == [True, True, False]
    for device in devices[:2]:
        ended.watch(device)
    assert ended.look() == []
    write(path, line.removesuffix(" bus-2"))
    assert ended.look() == [("device:bus-2", End.REVOKED)]
    write(path, "")
    assert ended.look() == [("device:bus-1", End.REVOKED)]


async def test_one_that_cannot_be_ended_holds_up_no_other(
    clock: ManualClock, tmp_path: Path
) -> None:
    path = write(tmp_path / "keys", KEYS)
    rights = Rights(RightsConfig(roles=ROLES, key_file=path), clock)
    board = await rights.principal(b"everything-key-0001")
    tried: list[End] = []

    def fail(why: End) -> None:
        tried.append(why)
        raise ValueError("a fault of ours")

    ended = Ended(rights)
    for _ in range(2):
        rights.watch(board, fail)
        ended.watch(board)
    write(path, KEYS.replace("board ", "# board"))
    assert ended.look() == [("board", End.REVOKED)] * 2
    assert tried == [End.REVOKED] * 2


async def test_nothing_is_left_of_what_was_open(clock: ManualClock, tmp_path: Path) -> None:
    maker = Maker()
    path = write(tmp_path / "keys.json", key_set(maker))
    rights = Rights(RightsConfig(roles=ROLES, issuers=(issuer(jwks_file=path),)), clock)
    anna = await rights.principal(maker.token())
    for _ in range(100):
        rights.watch(anna, lambda _: None).close()
    assert not rights._open
    assert len(rights._expiring) == 1
    clock.advance(700)
    rights.look()
    assert not rights._expiring
    assert not rights._queued


async def test_tokens_that_are_used_once_fill_no_memory_until_they_expire(
    clock: ManualClock, tmp_path: Path
) -> None:
    """An app that has a token made for each request: of those that are open, each still ends."""
    maker = Maker()
    path = write(tmp_path / "keys.json", key_set(maker))
    rights = Rights(RightsConfig(roles=ROLES, issuers=(issuer(jwks_file=path),)), clock)
    anna = await rights.principal(maker.token())
    ended: list[int] = []
    for number in range(5 * CLOSED_MAX):
        proof = replace(anna.proof, digest=number.to_bytes(8, "big"))
        one = rights.watch(replace(anna, proof=proof), lambda _, n=number: ended.append(n))
        if number % 100:
            one.close()
    still_open = set(range(0, 5 * CLOSED_MAX, 100))
    assert len(rights._expiring) <= CLOSED_MAX + 2 * len(still_open)
    assert len(rights._queued) == len(rights._expiring)
    clock.advance(700)
    rights.look()
    assert set(ended) == still_open
    assert not rights._expiring
    assert not rights._queued


@pytest.mark.parametrize("size", [CREDENTIAL_BYTES_MAX + 1, 100_000])
async def test_a_huge_token_is_looked_at_no_further(size: int, clock: ManualClock) -> None:
    rights = Rights(ANYBODY_CONFIG, clock)
    with pytest.raises(Refused, match="expected at most"):
        await rights.principal(b"x" * size)


def test_who_may_leave_the_rights_out() -> None:
    near = {"public_names": (), "trusted_proxies": ()}
    for host in ("127.0.0.1", "::1", "localhost", "127.8.0.1"):
        assert checked(None, hosts=(host,), **near) is ANYBODY_CONFIG
    for host in ("0.0.0.0", "::", "10.0.0.1", "access-1", ""):
        with pytest.raises(ConfigError, match="anonymous"):
            checked(None, hosts=(host,), **near)
    for key in near:
        with pytest.raises(ConfigError, match=key):
            checked(None, hosts=("127.0.0.1",), **near | {key: ("x",)})
    chosen = RightsConfig(anonymous="everything")
    assert checked(chosen, hosts=("0.0.0.0",), **near) is chosen


ISSUER_TOML = f'[[issuers]]\nissuer = "{ISSUER}"\naudience = "x"\n'


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('anonymous = "guests"', "expected one of everything"),
        ('[roles.everything]\ngrants = [{ streams = ["*"] }]', "always there"),
        (
            'anonymous = "a"\n[roles.a]\ngrants = [{ streams = ["*"], devices = ["$device"] }]',
            "has no claim",
        ),
        (ISSUER_TOML, "expected one of jwks_file and jwks_url"),
        (f'{ISSUER_TOML}jwks_url = "http://example.org/keys"', "expected https"),
        (f'{ISSUER_TOML}jwks_file = "x"\nalgorithms = ["HS256"]', "HS256"),
        (f'{ISSUER_TOML}jwks_file = "x"\nalgorithms = ["none"]', "none"),
        (f'{ISSUER_TOML}jwks_file = "x"\nroles = ["x"]', "expected one of everything"),
        (f'{ISSUER_TOML}jwks_file = "x"\n' * 2, "expected each issuer once"),
    ],
)
def test_a_configuration_that_is_wrong(text: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "rights.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=what):
        config_file.load(RightsConfig, path)
