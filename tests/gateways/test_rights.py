"""Who has a right to one thing sees nothing of another one behind the same gateway."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from tests.access.sockets.talk import talk
from tests.gateways.floor import Floor, Thing
from tests.services import PATIENCE_S, wait_until

pytestmark = pytest.mark.services

HALL, BATH, GATEWAY = "meter-right-hall", "meter-right-bath", "gw-right"
APP = {"Authorization": "Bearer hall-app-key-0000001"}
HERS = f"device IN ('{HALL}', '{BATH}', '{GATEWAY}')"


def devices_of(rows: list[dict[str, Any]]) -> set[str]:
    """Devices of readings, and of gaps: these pass each filter, but no right."""
    return {row["device"] for row in rows if "device" in row}


def readings(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if "$event" not in row]


async def first(client: httpx.AsyncClient, path: str, wanted: int) -> list[dict[str, Any]]:
    """The first readings of an event stream."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE_S), client.stream("GET", path) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for line in answer.aiter_lines():
            if line.startswith("data: ") and '"device"' in line:
                found.append(json.loads(line.removeprefix("data: ")))
            if len(found) == wanted:
                break
    return found


@pytest.mark.parametrize("who", ["app", "anybody"])
async def test_it_holds_at_every_door(here: Floor, who: str) -> None:
    hall, bath = Thing(here, HALL), Thing(here, BATH)
    if GATEWAY not in here.intakes:
        here.start_gateway(GATEWAY)
        for one in (bath, hall):
            one.send_until_kept(GATEWAY, 3)
        assert here.post(GATEWAY, [{"n": 1}]), "and one of its own"
    for name in (HALL, BATH, GATEWAY):
        wait_until(lambda n=name: here.events("power", f"device = '{n}'"), "all of it")  # type: ignore[misc]
    sees = {HALL} if who == "app" else {HALL, BATH, GATEWAY}
    headers = APP if who == "app" else {}
    url = f"http://127.0.0.1:{here.access_port}"
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S) as client:

        async def rows(path: str, name: str, **more: str) -> list[dict[str, Any]]:
            answer = await client.get(path, params={"where": HERS, **more})
            assert answer.status_code == 200, answer.text
            return list(answer.json()[name])

        events = "/v1/streams/power/events"
        page = await rows(events, "events", **{"from": "earliest", "limit": "1000"})
        assert devices_of(page if who == "app" else readings(page)) == sees
        assert devices_of(await rows("/v1/latest/power", "rows")) == sees
        synced = await rows("/v1/sync/power", "rows")
        assert {one["row"]["device"] for one in synced} == sees
        by_gateway = await client.get(
            events, params={"from": "earliest", "limit": "1000", "where": f"via = '{GATEWAY}'"}
        )
        assert devices_of(readings(by_gateway.json()["events"])) == sees - {GATEWAY}
        followed = await first(client, f"{events}?from=earliest&where={HERS}", 3)
        assert devices_of(followed) <= sees
    server = SimpleNamespace(url=url, port=here.access_port)
    async with talk(server, additional_headers=headers) as socket:  # type: ignore[arg-type]
        await socket.say("subscribe", streams=["power"], from_="earliest", where=HERS)
        told = [one["data"] for one in await socket.take(3)]
        assert devices_of(told) <= sees
        if who == "app":
            await socket.say("subscribe", "b", streams=["power"], from_="earliest",
                where=f"device = '{BATH}' OR device = '{HALL}'")  # fmt: skip
            bath.send_until_kept(GATEWAY, 1)
            wait_until(lambda: here.events("power", f"device = '{BATH}' AND n = 4"), "more of it")
            hall.send_until_kept(GATEWAY, 1)
            seen = [one["data"] for one in await socket.take(4, "b")]
            assert devices_of(seen) == {HALL}
