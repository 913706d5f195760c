"""The keys of an issuer: from a file, or from its server, which is asked seldom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from edgewake.cloud.rights import issuers
from edgewake.cloud.rights.config import (
    RightsConfig,
)
from edgewake.cloud.rights.issuers import AGAIN_S
from edgewake.cloud.rights.rights import End, Rights
from edgewake.cloud.rights.tokens import Refused
from edgewake.protocol.errors import ConfigError, Unavailable
from tests.push.builders import ManualClock
from tests.rights.endings import ROLES, Ended, issuer
from tests.rights.forge import ISSUER, NOW_S, Maker, key_set, write


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(round(NOW_S * 1000))


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
