"""`rights.local`: who comes from this machine needs no key, and nobody else is taken for it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from edgewake.cloud.client_share import Clients
from edgewake.cloud.rights.config import RightsConfig, checked
from edgewake.cloud.rights.guard import Guard
from edgewake.cloud.rights.reader_door import ReaderDoor
from edgewake.cloud.rights.rights import Rights
from edgewake.cloud.rights.tickets import Tickets
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.errors import ConfigError

LOOPBACK, NETWORK = "127.0.0.1", "192.168.1.5"


async def status(client: str | None, server: str | None, config: RightsConfig) -> int:
    """Of a request without key from `client` to our address `server`."""
    sent: list[dict[str, Any]] = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        sent.append(message)

    clock = FakeClock()
    numbers = itertools.count()
    rights = Rights(config, clock)
    guard = Guard(
        app,
        rights=rights,
        door=ReaderDoor(rights, clock),
        clients=Clients(),
        tickets=Tickets(clock, lambda: str(next(numbers))),
        open_paths=(),
    )
    scope = {
        "type": "http", "method": "GET", "path": "/v1/streams", "query_string": b"", "headers": [],
        "client": None if client is None else (client, 1),
        "server": None if server is None else (server, 8700),
    }  # fmt: skip
    await guard(scope, None, send)  # type: ignore[arg-type]
    return int(sent[0]["status"])


@pytest.mark.parametrize(
    ("client", "server", "expected"),
    [
        (LOOPBACK, LOOPBACK, 200),
        ("::1", "::1", 200),
        (NETWORK, NETWORK, 401),  # this machine, by its other address: so do its guests
        ("192.168.1.9", NETWORK, 401),
        (LOOPBACK, NETWORK, 401),
        ("192.168.1.9", LOOPBACK, 401),
        (None, LOOPBACK, 401),
        (LOOPBACK, None, 401),
        ("not an address", LOOPBACK, 401),
    ],
)
async def test_only_from_loopback_to_loopback_nothing_is_asked_for(
    client: str | None, server: str | None, expected: int
) -> None:
    assert await status(client, server, RightsConfig(local="everything")) == expected


async def test_control_anonymous_is_everybody() -> None:
    assert await status("192.168.1.9", NETWORK, RightsConfig(anonymous="everything")) == 200


def test_it_stands_alone_and_behind_no_proxy() -> None:
    with pytest.raises(ValueError, match="one of anonymous and local"):
        RightsConfig(anonymous="everything", local="everything")
    with pytest.raises(ValueError, match="local = 'x'"):
        RightsConfig(local="x")
    with pytest.raises(ConfigError, match="a proxy on this machine asks for others"):
        checked(
            RightsConfig(local="everything"),
            hosts=(LOOPBACK,),
            public_names=(),
            trusted_proxies=("127.0.0.1",),
        )


def test_one_address_of_the_network_among_several_needs_rights() -> None:
    with pytest.raises(ConfigError, match="nothing says who may read"):
        checked(None, hosts=(LOOPBACK, NETWORK), public_names=(), trusted_proxies=())
