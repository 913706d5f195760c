"""The list of requests, page by page, and what is counted of them.

In this process, without Kafka.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry, generate_latest
from starlette.middleware.base import RequestResponseEndpoint

from edgewake.cloud.ops.login.keys import Holder, Role
from edgewake.cloud.ops.routes import requests
from edgewake.cloud.ops.tables.metrics import TablesCollector
from edgewake.cloud.ops.tables.requests import FRESH_MAX, replied
from edgewake.cloud.ops.tables.tables import OpsTables
from edgewake.protocol.downlink.down_message import ReplyState
from edgewake.protocol.downlink.down_row import key_of
from edgewake.protocol.downlink.request_row import RequestRow

NOW = 1_790_000_000_000
DEVICES, EACH = 30, 10


def tables() -> OpsTables:
    """Thirty devices with ten requests each; of each device every second one is answered."""
    made = OpsTables()
    for device in (f"car-{n:02}" for n in range(DEVICES)):
        for n in range(EACH):
            where = {"partition": 0, "offset": n, "received_at": NOW, "expires_at": NOW + 1000}
            row = RequestRow(
                device=device, id=f"r{n}", name="map" if n < 3 else "route", body="", **where
            )
            row = replied(row, ReplyState.ANSWERED, now_ms=NOW, body="here") if n % 2 else row
            made.requests.put(key_of(device, row.id), row.model_dump_json().encode())
    return made


async def listed(made: OpsTables, **words: Any) -> dict[str, Any]:
    """GET /v1/requests."""
    app = FastAPI()
    app.include_router(requests.router(SimpleNamespace(tables=made, requests=None)))  # type: ignore[arg-type]

    @app.middleware("http")
    async def guard(http: Request, call_next: RequestResponseEndpoint) -> Response:
        http.state.holder = Holder("a test", Role.READ, b"")
        return await call_next(http)

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://ops"
    ) as client:
        found: dict[str, Any] = (await client.get("/v1/requests", params=words)).json()
    return found


async def test_all_pages_together_are_the_whole_list_in_order() -> None:
    made, keys, after = tables(), list[str](), dict[str, str]()
    while True:
        page = await listed(made, limit=70, **after)
        assert page["total"] == DEVICES * EACH
        keys += [item["key"] for item in page["items"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert keys == sorted(keys)
    assert len(set(keys)) == DEVICES * EACH


async def test_what_is_asked_for_is_shown_and_nothing_else() -> None:
    made = tables()
    assert [one["id"] for one in (await listed(made, device="car-07"))["items"]] == [
        f"r{n}" for n in range(EACH)
    ]
    assert (await listed(made, device="nobody"))["items"] == []
    assert [
        one["id"]
        for one in (await listed(made, device="car-07", state="open", name="map"))["items"]
    ] == ["r0", "r2"]
    answered = await listed(made, state="answered", limit=5)
    assert (answered["total"], {one["reply"] for one in answered["items"]}) == (
        DEVICES * EACH / 2,
        {"here"},
    )


async def test_only_what_is_shown_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be 200 of each of thousands of devices."""
    made, shown, view = tables(), list[str](), requests._view

    def note(row: RequestRow) -> requests.RequestView:
        shown.append(row.id)
        return view(row)

    monkeypatch.setattr(requests, "_view", note)
    assert len((await listed(made, limit=5, state="open"))["items"]) == 5
    assert len(shown) == 5


def test_requests_that_were_left_out_are_counted_for_prometheus() -> None:
    made, registry = OpsTables(), CollectorRegistry()
    registry.register(TablesCollector(made))
    for n in range(FRESH_MAX + 3):
        made.requests.on_request(
            {"device": "car", "received_at": NOW, "t": 1, "id": f"i{n}", "name": "route"}, 0, 0, n
        )
    assert b"edgewake_ops_left_out_requests_total 3.0\n" in generate_latest(registry)
