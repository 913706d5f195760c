"""A reader's key, token, cookie or ticket opens nothing of the operations API: SQL, summaries,
requests and commands of devices, dead letters and queries are for its own keys.

The doors are taken from the application's own table of routes.
"""

from __future__ import annotations

from pathlib import Path
from unittest.mock import MagicMock

import httpx
import pytest

from edgewake.cloud.client_share import Clients
from edgewake.cloud.ops.app import make_app
from edgewake.cloud.ops.login.auth import FILES, OPEN_PATHS, PAGES, Access
from edgewake.cloud.ops.login.key_door import KeyDoor
from edgewake.cloud.ops.login.keys import Keys
from edgewake.cloud.ops.login.sessions import Passes
from edgewake.cloud.web.http_part import _leaves_of
from edgewake.protocol.clock import SystemClock
from tests.rights.forge import Maker, write

OWN_KEY = "the-operators-own-key"
OPEN = OPEN_PATHS | PAGES | {"/docs/{file}"}


@pytest.fixture
def client(tmp_path: Path) -> httpx.AsyncClient:
    """Of the application; what lies behind its guard is never reached, and so not there."""
    clock = SystemClock()
    keys = Keys(write(tmp_path / "ops.key", OWN_KEY))
    passes = (Passes(clock, lambda: "secret", 60.0) for _ in range(2))
    access = Access(keys, KeyDoor(keys, clock), Clients(), *passes)
    made = make_app(MagicMock(access=access))
    doors = [
        (method, route.path)
        for route in _leaves_of(made.routes)
        for method in sorted(route.methods or ())
        if route.path not in OPEN and not route.path.startswith(FILES)
    ]
    found = httpx.AsyncClient(
        transport=httpx.ASGITransport(made, raise_app_exceptions=False), base_url="http://localhost"
    )
    found.doors = doors  # type: ignore[attr-defined]
    return found


async def test_every_door_refuses_a_reader(client: httpx.AsyncClient) -> None:
    token = Maker().token().decode()
    ways = (
        {"Authorization": f"Bearer {token}"},
        {"Authorization": "Bearer a-readers-key-00000001"},
        {"Cookie": f"edgewake_reader={token}; edgewake_ops_80={token}"},
    )
    doors = client.doors  # type: ignore[attr-defined]
    assert {"/v1/sql", "/v1/devices", "/v1/queries"} <= {path for _, path in doors}
    for method, path in doors:
        asked = path.replace("{", "").replace("}", "")
        for headers in ways:
            answer = await client.request(method, asked, headers=headers)
            assert answer.status_code == 401, (method, path)
        answer = await client.request(method, asked + "?ticket=made-up")
        assert answer.status_code == 401, (method, path)


async def test_the_control_its_own_key_comes_in(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/devices", headers={"Authorization": f"Bearer {OWN_KEY}"})
    assert answer.status_code != 401
