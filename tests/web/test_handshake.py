"""A WebSocket that nobody speaks here is refused with a reason."""

from __future__ import annotations

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from edgewake.cloud.web.handshake import RefuseWebSockets

APP = Starlette(routes=[Route("/x", lambda _: PlainTextResponse("here"))])


async def asked(headers: dict[str, str]) -> httpx.Response:
    transport = httpx.ASGITransport(RefuseWebSockets(APP))
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        return await client.get("/x", headers=headers)


@pytest.mark.parametrize("upgrade", ["websocket", "WebSocket "])
async def test_a_handshake_is_answered_with_where_to_go(upgrade: str) -> None:
    answer = await asked({"Upgrade": upgrade})
    assert (answer.status_code, answer.headers["connection"], answer.json()["type"]) == (
        400,
        "close",
        "urn:edgewake:problem:websocket",
    )


@pytest.mark.parametrize("headers", [{}, {"Upgrade": "h2c"}])
async def test_any_other_offer_is_ignored(headers: dict[str, str]) -> None:
    assert (await asked(headers)).text == "here"
