"""Who hangs up while a proxy waits for it: it holds no place, and another proxy waits no longer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from edgewake.cloud.client_share import Clients
from edgewake.cloud.push.app import make_app
from edgewake.cloud.push.peers import Peers
from edgewake.cloud.push.proxy import Elsewhere, Proxy
from edgewake.cloud.push.run import PushConfig, connections_of
from edgewake.cloud.push.waking.relay import WAITING_MAX
from edgewake.cloud.rights.config import ANYBODY_CONFIG
from edgewake.cloud.rights.rights import Rights
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.leases.lease import Relay
from tests.push.builders import ManualClock
from tests.push.proxy_world import until, world
from tests.services import PATIENCE_S


class Client:
    """Asks for a wake-up, waits 50 s for it, and hangs up when it is told to."""

    def __init__(self, proxy: Any, peers: Any, lease: str, token: str) -> None:
        clock = SystemClock()
        self._app = make_app(
            proxy,
            peers,
            CollectorRegistry(),
            progress=lambda: "",
            rights=Rights(ANYBODY_CONFIG, clock),
            clock=clock,
        )
        self.hung_up = asyncio.Event()
        self._sent_body = False
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": f"/v1/leases/{lease}/wake",
            "raw_path": f"/v1/leases/{lease}/wake".encode(),
            "query_string": b"wait=50",
            "root_path": "",
            "headers": [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {token}".encode())],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8703),
        }

    async def ask(self) -> None:
        async def nowhere(_: Any) -> None:
            pass

        await self._app(self.scope, self._receive, nowhere)

    async def _receive(self) -> dict[str, Any]:
        if not self._sent_body:
            self._sent_body = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.hung_up.wait()
        return {"type": "http.disconnect"}


async def test_who_hangs_up_at_a_relay_holds_no_place() -> None:
    async with world(ManualClock()) as w:  # by which its 50 seconds are never over
        granted = await w.grant(endpoint=Relay(type="relay"))
        client = Client(w.proxy, None, granted.lease.id, granted.endpoint.token)
        asking = asyncio.create_task(client.ask())
        relay = w.proxy._leases.relay
        await until(lambda: relay._waiting)
        client.hung_up.set()
        async with asyncio.timeout(PATIENCE_S):
            await asking
        assert (relay._waiting, relay._held._of.total()) == ({}, 0)


class Far(Proxy):
    """Another one has the lease."""

    def __init__(self) -> None:
        pass

    async def relayed(self, *_: object, **__: object) -> None:
        raise Elsewhere(3, 50)


class Waits(Peers):
    """That one answers as late as it may."""

    def __init__(self) -> None:
        self.asked, self.is_cut_off = asyncio.Event(), False

    async def url_of(self, partition: int) -> str | None:
        return "http://other"

    async def forward(self, *_: object, **__: object) -> Any:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.is_cut_off = True


async def test_who_hangs_up_is_waited_for_by_no_other_proxy() -> None:
    """A take that waited there was given events that nobody got, until their time was over."""
    peers = Waits()
    client = Client(Far(), peers, "a1", "t")
    asking = asyncio.create_task(client.ask())
    async with asyncio.timeout(PATIENCE_S):
        await peers.asked.wait()
        assert not peers.is_cut_off
        client.hung_up.set()
        await asking
    assert peers.is_cut_off


def test_clients_that_wait_leave_connections_to_others() -> None:
    """Two thousand of them shut out everybody, health checks too, while ten thousand may wait."""
    settings = PushConfig(cursor_key_file=Path("c"), lease_key_file=Path("l"))
    found = connections_of(settings, Clients())
    for number in range(WAITING_MAX):
        assert found.refusal(f"10.0.{number // 200}.{number % 200}") is None, number
    assert found.refusal("192.0.2.1") is None
