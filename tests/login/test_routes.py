"""Logins as a browser meets them that has come back from its provider."""

from __future__ import annotations

import os
import re
import secrets
from html import unescape
from pathlib import Path

import httpx
from fastapi import FastAPI

from edgewake.cloud.client_share import Clients
from edgewake.cloud.login import routes
from edgewake.cloud.login.desk import Desk
from edgewake.cloud.login.provider import Provider
from edgewake.protocol.clock import SystemClock
from tests.login.forged import Forged, config_of
from tests.rights.forge import write

URL = "http://127.0.0.1:8700"


def browser(forged: Forged, folder: Path) -> httpx.AsyncClient:
    """One at a server whose people log in there."""
    write(folder / "session.key", secrets.token_hex(32))
    config, clock = config_of(forged, folder / "session.key"), SystemClock()
    provider = Provider(config, clock)
    secret = lambda: secrets.token_urlsafe(32)  # noqa: E731
    app = FastAPI()
    desk = Desk(config, provider, clock, secret=secret, random_bytes=os.urandom)
    routes.add(app, desk, Clients())
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=URL)


async def test_a_login_whose_provider_is_away_for_a_moment_is_tried_again_by_its_link(
    tmp_path: Path,
) -> None:
    """Its cookie was taken away with the first answer, and with it where the person wanted to."""
    async with Forged().running() as forged, browser(forged, tmp_path) as client:
        begun = await client.get("/login", params={"next": "/town?at=7"})
        asked = httpx.URL(begun.headers["location"]).params
        forged.nonce = asked["nonce"]
        back = {"state": asked["state"], "code": "c&d"}
        forged.token_answer, forged.status = "later", 503
        away = await client.get("/login/callback", params=back)
        assert (away.status_code, away.headers["retry-after"]) == (503, "5")
        (again, _) = re.findall(r'<a href="([^"]*)">', away.text)
        forged.token_answer, forged.status = None, 200
        done = await client.get(unescape(again))
        assert (done.status_code, done.headers["location"]) == (303, "/town?at=7")
        assert forged.forms[-1]["code"] == ["c&d"]
        used = await client.get("/login/callback", params=back)
        assert (used.status_code, used.text.count("/login?next=%2F")) == (400, 2)


async def test_a_login_that_is_refused_is_over(tmp_path: Path) -> None:
    async with Forged().running() as forged, browser(forged, tmp_path) as client:
        begun = await client.get("/login")
        asked = httpx.URL(begun.headers["location"]).params
        forged.token_answer, forged.status = {"error": "invalid_grant"}, 400
        refused = await client.get("/login/callback", params={"state": asked["state"], "code": "c"})
        assert refused.status_code == 403
        assert [name for name in client.cookies if name.startswith(routes.PENDING_COOKIE)] == []
        assert "/login/callback" not in refused.text
