"""Only names of our own open a part: a stranger's page that makes its name resolve to us is
refused.
"""

from __future__ import annotations

import socket

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Scope

from edgewake.cloud.web.host import HostCheck


async def status(*hosts: str) -> int:
    app = HostCheck(PlainTextResponse("in"), ["Readings.example.org"])
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1"
    ) as client:
        return (await client.get("/", headers=[("Host", host) for host in hosts])).status_code


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:8700",
        "[::1]:8700",
        "192.0.2.7",
        "localhost:8700",
        "page.localhost",
        "LOCALHOST.",
        "readings.example.org:443",
    ],
)
async def test_our_own_names_open(host: str) -> None:
    assert await status(host) == 200


async def test_this_machine_s_name_opens() -> None:
    assert await status(socket.gethostname()) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8700",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "readings.example.org.evil.example",
        "[evil]",
        "",
    ],
)
async def test_a_stranger_s_name_is_refused(host: str) -> None:
    assert await status(host) == 421


async def test_one_stranger_s_name_among_ours_is_refused() -> None:
    assert await status("localhost", "evil.example") == 421


async def test_a_request_without_host_is_no_browser_s() -> None:
    answered: list[int] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        answered.append(message.get("status", 0))

    scope: Scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    await HostCheck(PlainTextResponse("in"))(scope, receive, send)
    assert answered[0] == 200
