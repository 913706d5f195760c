"""Requests for access tokens: asked again where the answer is not final, in bounded turns."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from edgewake.cloud.bridge.web import provisioning
from edgewake.cloud.client_share import Bound
from tests.bridge.thingsboard.test_hostile_clients import Client, here
from tests.feeds import eventually
from tests.services import PATIENCE_S

ASKED_AT_ONCE = 100


async def test_an_answer_that_is_not_final_is_asked_for_again(tmp_path: Path) -> None:
    """Control: the final one is asked for once, or a connection could try many codes."""
    given = orjson.dumps({"items": [{"device": "new", "password": "p"}]})
    answers = [b"503 Not Now", b"200 OK"]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].split()[0])
        await reader.readexactly(size)
        line = b"HTTP/1.1 " + answers.pop(0)
        writer.write(b"%s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (line, len(given)))
        writer.write(given)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    more = {"enrol_url": f"http://127.0.0.1:{port}", "password_file": tmp_path / "none"}
    async with server, here(tmp_path, **more) as site, site.client("provision") as asks:
        await asks.listens(provisioning.RESPONSE)
        said = [await _provisioned(asks) for _ in range(3)]
    assert said == ["FAILURE", "SUCCESS", "SUCCESS"]
    assert answers == []


async def _provisioned(client: Client) -> str:
    client.says(provisioning.REQUEST, {"deviceName": "new", "provisionDeviceSecret": "code"})
    (told,) = await client.told(1)
    return str(orjson.loads(told.payload)["status"])


async def test_a_request_waits_for_its_turn_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(provisioning, "ANSWER_S", 0.1)
    asks = provisioning.Provisioning("http://127.0.0.1:9", None)
    for _ in range(provisioning.AT_ONCE_MAX):
        await asks._turns.acquire()
    async with asyncio.timeout(PATIENCE_S):
        answer = await asks.answer({"deviceName": "new", "provisionDeviceSecret": "code"}, "here")
    assert orjson.loads(answer)["status"] == "FAILURE"


async def test_who_asks_for_tokens_without_end_leaves_turns_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Anybody may ask. One turn is left, however many one client asks for."""
    monkeypatch.setattr(provisioning, "ANSWER_S", PATIENCE_S)
    asking = {"deviceName": "new", "provisionDeviceSecret": "code"}
    silent = asyncio.Event()
    came: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        came.append(await reader.readexactly(length))
        if b"hostile" in came[-1]:
            await silent.wait()
        else:
            body = b'{"items": [{"device": "new", "password": "p"}]}'
            head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            writer.write(head % len(body) + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        asks = provisioning.Provisioning(url, None)
        hostile = [
            asyncio.create_task(asks.answer(asking | {"deviceName": "hostile"}, "203.0.113.1"))
            for _ in range(ASKED_AT_ONCE)
        ]
        await eventually(lambda: len(came) >= provisioning.AT_ONCE_MAX - 1, "it has its turns")
        answer = await asks.answer(asking, "198.51.100.7")
        assert orjson.loads(answer)["status"] == "SUCCESS"
        at_once = [one for one in hostile if one.done()]
        own = Bound("", provisioning.WAITING_MAX).own_max
        assert len(at_once) == ASKED_AT_ONCE - own, "these are too many of one"
        assert {one.result() for one in at_once} == {provisioning.AGAIN}
        silent.set()
        await asyncio.gather(*hostile)
