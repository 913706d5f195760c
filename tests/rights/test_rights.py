"""Who somebody is, and when that holds no longer: with a clock that is told, real files, and an
issuer that does as it likes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from edgewake.cloud.rights import issuers
from edgewake.cloud.rights.config import (
    ANYBODY_CONFIG,
    GrantConfig,
    IssuerConfig,
    RightsConfig,
    RoleConfig,
    checked,
)
from edgewake.cloud.rights.issuers import AGAIN_S
from edgewake.cloud.rights.principal import ANYBODY, Action, Principal
from edgewake.cloud.rights.rights import CLOSED_MAX, CREDENTIAL_BYTES_MAX, End, Rights
from edgewake.cloud.rights.tickets import OWN_MAX, TICKET_LIFE_S, Tickets, TooManyTickets
from edgewake.cloud.rights.tokens import Refused
from edgewake.protocol import config as config_file
from edgewake.protocol.errors import ConfigError, Unavailable
from tests.push.builders import ManualClock
from tests.rights.forge import AUDIENCE, ISSUER, NOW_S, Maker, key_set, write

ROLES = {
    "cars": RoleConfig(grants=(GrantConfig(streams=("s",), devices=("$device",)),)),
    "guest": RoleConfig(grants=(GrantConfig(streams=("weather_*",)),)),
}
KEYS = """
# who reads
board   everything  everything-key-0001
anna    cars        annas-own-key-000002  car-7 car-8   # two cars
"""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(round(NOW_S * 1000))


def issuer(**more: object) -> IssuerConfig:
    return IssuerConfig.model_validate(
        {"issuer": ISSUER, "audience": AUDIENCE, "role": "guest"} | more
    )


class Ended:
    """What watches were told."""

    def __init__(self, rights: Rights) -> None:
        self.rights = rights
        self.said: list[tuple[str, End]] = []

    def watch(self, principal: Principal) -> None:
        self.rights.watch(principal, lambda why: self.said.append((principal.name, why)))

    def look(self) -> list[tuple[str, End]]:
        self.said.clear()
        self.rights.look()
        return self.said


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


async def test_keys_of_an_issuer_change(clock: ManualClock, tmp_path: Path) -> None:
    """The new key is believed at once, also before the next look; the old one until it is gone."""
    old, new = Maker(kid="old"), Maker(kid="new")
    path = write(tmp_path / "keys.json", key_set(old))
    rights = Rights(RightsConfig(roles=ROLES, issuers=(issuer(jwks_file=path),)), clock)
    ended = Ended(rights)
    ended.watch(await rights.principal(old.token()))
    write(path, key_set(old, new))
    ended.watch(await rights.principal(new.token(sub="berta")))
    assert ended.look() == []
    write(path, key_set(new))
    assert ended.look() == [(f"{ISSUER}#anna", End.REVOKED)]
    with pytest.raises(Refused):
        await rights.principal(old.token())
    impostor = Maker(kid="new")
    write(path, key_set(impostor))
    assert ended.look() == [(f"{ISSUER}#berta", End.REVOKED)], "a key is not its name"


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


class Server:
    """An issuer's server, in one process with us: what it answers, and how often it was asked."""

    def __init__(self, answer: Callable[[], Awaitable[bytes]]) -> None:
        self.answer, self.asked = answer, 0

    async def __call__(self, url: str) -> bytes:
        self.asked += 1
        return await self.answer()


async def test_an_issuers_server_is_asked_seldom(clock: ManualClock) -> None:
    maker, other = Maker(), Maker(kid="other")
    answers = [key_set(maker)]

    async def answer() -> bytes:
        return answers[0].encode()

    server = Server(answer)
    config = RightsConfig(
        roles=ROLES, issuers=(issuer(jwks_url="https://login.example.org/keys", refresh_s=60.0),)
    )
    rights = Rights(config, clock, server)
    ended = Ended(rights)
    ended.watch(await rights.principal(maker.token()))
    for number in range(50):
        with pytest.raises(Refused):
            await rights.principal(maker.token({"kid": f"made-up-{number}"}))
    assert server.asked == 1
    clock.advance(AGAIN_S)
    answers[0] = key_set(maker, other)
    ended.watch(await rights.principal(other.token(sub="berta")))
    assert server.asked == 2
    answers[0] = key_set(other)
    clock.advance(60)
    ended.look()
    await asyncio.sleep(0.01)
    assert server.asked == 3
    assert ended.look() == [(f"{ISSUER}#anna", End.REVOKED)]


async def test_keys_of_a_dead_server_are_believed_for_a_while(clock: ManualClock) -> None:
    maker, is_dead = Maker(), False

    async def answer() -> bytes:
        if is_dead:
            raise ConfigError("no answer")
        return key_set(maker).encode()

    config = RightsConfig(
        roles=ROLES,
        issuers=(issuer(jwks_url="https://x.example/keys", refresh_s=60.0, stale_s=600.0),),
    )
    rights = Rights(config, clock, Server(answer))
    ended = Ended(rights)
    ended.watch(await rights.principal(maker.token(exp=NOW_S + 3600)))
    is_dead = True
    clock.advance(600)
    assert ended.look() == []
    await asyncio.sleep(0.01)
    await rights.principal(maker.token(exp=NOW_S + 3600, jti="2"))
    clock.advance(61)
    assert ended.look() == [(f"{ISSUER}#anna", End.REVOKED)]
    with pytest.raises(Unavailable):
        await rights.principal(maker.token(exp=NOW_S + 3600, jti="3"))


@asynccontextmanager
async def http(
    head: bytes, body: bytes, *, is_slow: bool = False
) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that says these bytes to everybody; its address, and what was asked."""
    asked: list[bytes] = []
    is_over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        if is_slow:
            await is_over.wait()
        writer.write(head + b"\r\nConnection: close\r\n\r\n" + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys", asked
    finally:
        is_over.set()
        server.close()
        await server.wait_closed()


async def test_a_server_is_heard_and_no_other_is(monkeypatch: pytest.MonkeyPatch) -> None:
    text = key_set(Maker()).encode()
    async with http(b"HTTP/1.1 200 OK", text) as (url, asked):
        assert await issuers.fetch(url) == text
        redirect = f"HTTP/1.1 302 Found\r\nLocation: {url}".encode()
        async with http(redirect, b"") as (other, _):
            with pytest.raises(ConfigError, match="302"):
                await issuers.fetch(other)
        assert len(asked) == 1, "a redirect is not followed"
    async with http(b"HTTP/1.1 200 OK", b"x" * 400_000) as (large, _):
        with pytest.raises(ConfigError, match="expected at most"):
            await issuers.fetch(large)
    async with http(b"HTTP/1.1 200 OK", text, is_slow=True) as (slow, _):
        monkeypatch.setattr(issuers, "FETCH_S", 0.5)
        with pytest.raises(ConfigError, match="no answer within"):
            await issuers.fetch(slow)
    with pytest.raises(ConfigError, match="Connect"):
        await issuers.fetch(slow)


def test_tickets(clock: ManualClock) -> None:
    numbers = iter(range(1000))
    tickets = Tickets(clock, lambda: f"t{next(numbers)}")
    assert tickets.issue(ANYBODY, "a") == "t0"
    assert tickets.use_up("t0") is ANYBODY
    assert tickets.use_up("t0") is None
    first = tickets.issue(ANYBODY, "a")
    clock.advance(TICKET_LIFE_S + 0.1)
    assert tickets.use_up(first) is None
    for _ in range(OWN_MAX):
        tickets.issue(ANYBODY, "a")
    with pytest.raises(TooManyTickets):
        tickets.issue(ANYBODY, "a")
    tickets.issue(ANYBODY, "b")
    clock.advance(TICKET_LIFE_S + 0.1)
    tickets.issue(ANYBODY, "a")
    assert tickets.use_up("") is None


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
