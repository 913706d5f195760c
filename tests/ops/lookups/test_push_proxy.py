"""What the operations API makes of a push proxy's answers, and of a key and an address of one."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from edgewake.cloud.ops.lookups import push_proxy
from edgewake.cloud.ops.lookups.push_proxy import PushProxy, PushProxyConfig
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol.config import parse
from edgewake.protocol.errors import ConfigError, Unavailable

MADE = {"name": "one", "state": "active", "endpoint_host": "h", "secret": None}
Asked = list[tuple[Mapping[str, str], Any]]


def answer(status: int, body: object, **more: str) -> bytes:
    """As a proxy sends it."""
    content = json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


@asynccontextmanager
async def answering(one: Callable[[int], bytes]) -> AsyncIterator[tuple[str, Asked]]:
    """A server that gives the Nth question an answer, its address, and what it was asked."""
    seen: Asked = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in head)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        seen.append((headers, json.loads(body or b"null")))
        writer.write(one(len(seen) - 1))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", seen


def proxy(url: str, key_file: Path | None = None) -> PushProxy:
    return PushProxy(PushProxyConfig(url=url, key_file=key_file), os.urandom)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("one-key-of-ours\nanother-key-of-ours\n", "2 words: expected one key"),
        ("\n", "0 words: expected one key"),
        ("schlüssel-zum-glück\n", "ASCII"),
        ("a-key-with-a-\0-in-it", "ASCII"),
    ],
)
def test_a_key_file_that_is_no_key_is_refused_at_the_start(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "push.key"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=said) as caught:
        proxy("http://127.0.0.1:1", path)
    assert str(path) in str(caught.value)
    assert not any(word in str(caught.value) for word in text.split())


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://push:port", "http://HOST:PORT"),
        ("http://:8703", "no host"),
        ("http://push:8703", "expected key_file"),
        ("https://10.0.0.7", "expected key_file"),
    ],
)
def test_an_address_that_cannot_be_asked_or_needs_a_key_is_refused(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse(PushProxyConfig, {"url": url}, "ops.toml")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_on_this_machine_no_key_is_needed(host: str) -> None:
    assert parse(PushProxyConfig, {"url": f"http://{host}:8703"}, "ops.toml").key_file is None


async def test_a_key_that_was_changed_is_shown_at_once(tmp_path: Path) -> None:
    path = tmp_path / "push.key"
    path.write_text("the-first-key\n")
    async with answering(lambda n: answer(200, MADE)) as (url, seen):
        one = proxy(url, path)
        for key in ("the-first-key", "another-key-of-ours"):
            path.write_text(f"{key}\n")
            await one.put("one", b"{}")
        assert [headers["authorization"] for headers, _ in seen] == [
            "Bearer the-first-key",
            "Bearer another-key-of-ours",
        ]


async def test_one_of_ours_is_asked_for_by_its_id(tmp_path: Path) -> None:
    told: list[list[dict[str, str]]] = [[{"id": "b", "name": "second"}], []]
    async with answering(lambda n: answer(200, {"deliveries": told[n]})) as (url, _):
        one = proxy(url)
        assert [await one.our_name(id_) for id_ in ("b", "c")] == ["second", None]


async def test_how_long_to_wait_is_passed_on() -> None:
    refused = answer(429, {"title": "too many deliveries", "detail": "200"}, Retry_After="60")
    async with answering(lambda n: refused) as (url, _):
        with pytest.raises(Problem) as caught:
            await proxy(url).put("one", b"{}")
    assert caught.value.status == 429
    assert caught.value.response().headers["Retry-After"] == "60"


async def test_an_answer_without_an_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte of it comes in time, the whole does not; and one that is too large."""
    monkeypatch.setattr(push_proxy, "ANSWER_S", 0.5)
    ended = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not writer.is_closing() and not reader.at_eof():
            writer.write(b" ")
            await asyncio.sleep(0.05)
        writer.close()
        ended.set()

    async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
        one = proxy(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with asyncio.timeout(5):
            with pytest.raises(Unavailable, match="does not answer"):
                await one.enable("one")
            await ended.wait()
    monkeypatch.undo()
    large = answer(200, {"name": "x" * push_proxy.ANSWER_BYTES_MAX})
    async with answering(lambda n: large) as (url, _):
        with pytest.raises(Unavailable, match=f"more than {push_proxy.ANSWER_BYTES_MAX} bytes"):
            await proxy(url).enable("one")


async def test_the_secret_of_a_lost_answer_is_that_of_the_next_try() -> None:
    """The proxy may have stored it: nobody else has the secret."""
    async with answering(lambda n: b"" if n == 0 else answer(200, MADE)) as (url, seen):
        one = proxy(url)
        with pytest.raises(Unavailable):
            await one.put("one", b'{"streams":["s"]}', must_be_new=True)
        found = await one.put("one", b'{"streams":["s"]}', must_be_new=True)
        sent = [body["secret"] for _, body in seen]
        assert sent == [found["secret"]] * 2
        assert found["secret"].startswith("whsec_")
        assert [headers["if-none-match"] for headers, _ in seen] == ["*", "*"]
        other = await one.put("one", b'{"streams":["s"]}', must_be_new=True)
        assert other["secret"] != found["secret"], "it was answered: the next is another"
        given = await one.put("two", b'{"secret":"whsec_mine"}', must_be_new=True)
        assert (seen[-1][1]["secret"], given["secret"]) == ("whsec_mine", None)
        await one.put("three", b'{"streams":["s"]}')
        assert "secret" not in seen[-1][1], "one that is there keeps its secret"
        assert "if-none-match" not in seen[-1][0]


async def test_a_name_that_is_taken_is_said_and_its_secret_forgotten() -> None:
    taken = answer(412, {"title": "delivery exists", "detail": "one is there"})
    async with answering(lambda n: taken) as (url, seen):
        one = proxy(url)
        for _ in range(2):
            with pytest.raises(Problem, match="one is there") as caught:
                await one.put("one", b"{}", must_be_new=True)
            assert (caught.value.status, caught.value.code) == (412, "delivery_exists")
        assert seen[0][1]["secret"] != seen[1][1]["secret"]
