from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from starlette.responses import PlainTextResponse

from edgewake.cloud.ops.auth import TICKET_LIFE_S, TICKETS_MAX, Guard, Tickets, read_key
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.errors import ConfigError

KEY = "k" * 32


def tickets(clock: FakeClock | None = None) -> Tickets:
    numbers = iter(range(10_000))
    return Tickets(clock or FakeClock(), lambda: f"t{next(numbers)}")


async def status(path: str, headers: dict[str, str] | None = None, given: Tickets | None = None) -> int:
    guarded = Guard(PlainTextResponse("in"), key=KEY, tickets=given or tickets())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=guarded), base_url="http://ops") as client:
        return (await client.get(path, headers=headers)).status_code


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 401),
        ({"Authorization": f"Bearer {KEY}"}, 200),
        ({"Authorization": f"bearer {KEY}"}, 200),
        ({"X-API-Key": KEY}, 200),
        ({"Authorization": f"Basic {KEY}"}, 401),
        ({"Authorization": f"Bearer {KEY}x"}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"X-API-Key": ""}, 401),
        ({"Authorization": "Bearer wrong", "X-API-Key": KEY}, 401),
    ],
)
async def test_the_key_opens_and_nothing_else_does(headers: dict[str, str], expected: int) -> None:
    assert await status("/v1/devices", headers) == expected


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/openapi.json"])
async def test_health_metrics_and_the_description_are_open(path: str) -> None:
    assert await status(path) == 200


@pytest.mark.parametrize("path", ["/healthz/", "//healthz", "/v1/nothing", "/", "/v1/live", "/metrics/../v1/devices"])
async def test_what_only_looks_open_is_not(path: str) -> None:
    assert await status(path) == 401


async def test_a_ticket_opens_the_live_tail_once() -> None:
    given = tickets()
    ticket = given.issue()
    assert await status(f"/v1/devices?ticket={ticket}", given=given) == 401
    assert [await status(f"/v1/live?ticket={ticket}", given=given) for _ in range(2)] == [200, 401]


def test_a_ticket_is_good_for_30_seconds() -> None:
    clock = FakeClock()
    given = tickets(clock)
    first, second = given.issue(), given.issue()
    clock.advance(TICKET_LIFE_S)
    assert given.redeem(first)
    clock.advance(0.001)
    assert not given.redeem(second)


def test_outstanding_tickets_are_bounded_and_the_oldest_goes_first() -> None:
    given = tickets()
    issued = [given.issue() for _ in range(TICKETS_MAX + 1)]
    assert [given.redeem(issued[0]), given.redeem(issued[1])] == [False, True]


@pytest.mark.parametrize("content", [None, b"", b"short", "schlüssel-schlüssel".encode(), b"\xff" * 20])
def test_a_key_file_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "ops.key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"ops\.key"):
        read_key(path)
