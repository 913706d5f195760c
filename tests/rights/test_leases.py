"""Leases by right: who may ask for one, what it counts, and what its wake-up shows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import tomli_w
from prometheus_client import CollectorRegistry

from edgewake.cloud.push.app import make_app
from edgewake.cloud.rights.config import RightsConfig
from edgewake.cloud.rights.rights import Rights
from edgewake.protocol.clock import SystemClock
from tests.feeds import unique
from tests.push.service import Service
from tests.rights.conftest import World, rights_of
from tests.rights.test_doors import client_of, paths_of, told
from tests.services import PATIENCE_S, Kafka, free_ports, part

OPEN, BY_RIGHT, BY_LEASE = "open", "by right", "by lease"
RULES = {
    "/docs": OPEN, "/docs/{file}": OPEN, "/openapi.json": OPEN, "/healthz": OPEN,
    "/readyz": OPEN, "/metrics": OPEN,
    "/v1/leases": BY_RIGHT, "/v1/leases/{lease_id}": BY_LEASE,
}  # fmt: skip
"""Who may come in by each path: everybody, who has a right, who has the lease's own token."""


@pytest.fixture(scope="module")
def push(kafka: Kafka, rights_world: World) -> Iterator[Service]:
    world, (port,) = rights_world, free_ports(1)
    (world.directory / "lease.key").write_text("cd" * 32 + "\n")
    settings = {
        "name": f"push-{port}",
        "port": port,
        "cursor_key_file": str(world.directory / "cursor.key"),
        "lease_key_file": str(world.directory / "lease.key"),
        "allow_hosts": ["127.0.0.1"],
        "kafka": {"bootstrap": kafka.bootstrap},
        "rights": rights_of(world.directory, world.mine.name, world.totals.name, world.maker),
    }
    path = world.directory / "push.toml"
    path.write_text(tomli_w.dumps(settings))
    service = Service(f"http://127.0.0.1:{port}", part("push", path, world.directory / "push.log"))
    with service.process:
        service.until_ready()
        yield service


def test_every_route_has_a_rule() -> None:
    clock = SystemClock()
    made = make_app(
        None,  # type: ignore[arg-type]  # none of them is asked
        None,  # type: ignore[arg-type]
        CollectorRegistry(),
        progress=lambda: "",
        rights=Rights(RightsConfig(), clock),
        clock=clock,
    )
    assert paths_of(made) == set(RULES)


async def cursor_of(world: World, stream: str, *, who: str = "board") -> str:
    """Where a stream begins."""
    async with client_of(world, who) as client:
        page = await client.get(f"/v1/streams/{stream}/events?from=earliest&limit=1")
    assert page.status_code == 200
    return str(page.json()["cursor"])


async def ask(
    push: Service, stream: str, cursor: str, bearer: str | None, **more: Any
) -> httpx.Response:
    body = {
        "subscription": {"streams": [stream], **more},
        "cursor": cursor,
        "endpoint": {"url": "http://127.0.0.1:9/hook"},
        "wake": {"min_events": 1000},
    }
    headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
    async with httpx.AsyncClient(base_url=push.url, timeout=PATIENCE_S, headers=headers) as client:
        return await client.post("/v1/leases", json=body)


async def test_who_may_ask(rights_world: World, push: Service) -> None:
    world = rights_world
    mine, other = world.mine.name, world.other.name
    cursor = await cursor_of(world, mine)
    assert (await ask(push, mine, cursor, None)).status_code == 401
    assert (await ask(push, mine, cursor, "no-such-key-00000")).status_code == 401
    assert (await ask(push, mine, cursor, world.token(exp=time.time() - 9))).status_code == 401
    absent = unique("feed")
    for bearer, name in ((world.token(), other), ("guest-key-00000001", mine)):
        forbidden = await ask(push, name, cursor, bearer)
        missing = await ask(push, absent, cursor, bearer)
        assert (forbidden.status_code, missing.status_code) == (422, 422)
        assert told(forbidden, name) == told(missing, absent)
    for more in ({"where": "secret = 'x'"}, {"where": "no_such = 1"}, {"select": "secret"}):
        refused = await ask(push, mine, cursor, world.token(), **more)
        assert (refused.status_code, refused.json()["title"]) == (422, "filter")


async def test_a_lease_counts_what_its_right_shows(rights_world: World, push: Service) -> None:
    world = rights_world
    cursor = await cursor_of(world, world.mine.name, who="owner")
    granted = [
        (await ask(push, world.mine.name, cursor, bearer)).json()
        for bearer in (world.token(), "board-key-00000001")
    ]
    assert all(lease["subscription"]["where"] is None for lease in granted), "not shown"
    fields: dict[str, list[Any]] = {"speed": [60.0], "secret": ["y"]}
    before = [await unseen(push, lease) for lease in granted]
    for device in ("car-1", "car-2", "car-2"):
        world.mine.send(device, fields=fields)
    async with asyncio.timeout(PATIENCE_S):
        while (await unseen(push, granted[1])) - before[1] < 3:
            await asyncio.sleep(0.1)
        while (await unseen(push, granted[0])) - before[0] < 1:
            await asyncio.sleep(0.1)
    board, owner = [await unseen(push, lease) for lease in reversed(granted)]
    assert board - owner >= 2


async def unseen(push: Service, lease: dict[str, Any]) -> int:
    async with httpx.AsyncClient(base_url=push.url, timeout=PATIENCE_S) as client:
        answer = await client.get(
            f"/v1/leases/{lease['id']}", headers={"Authorization": f"Bearer {lease['token']}"}
        )
    return int(answer.json()["unseen_count"])


async def test_a_lease_of_one_is_no_right_of_another(rights_world: World, push: Service) -> None:
    world = rights_world
    cursor = await cursor_of(world, world.mine.name)
    lease = (await ask(push, world.mine.name, cursor, "board-key-00000001")).json()
    async with httpx.AsyncClient(base_url=push.url, timeout=PATIENCE_S) as client:
        for bearer in (world.token(), "board-key-00000001"):
            answer = await client.get(
                f"/v1/leases/{lease['id']}", headers={"Authorization": f"Bearer {bearer}"}
            )
            assert answer.status_code == 404
