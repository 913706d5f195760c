"""What a role may limit: each limit refuses one more by its name, and counts nobody else."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import httpx
import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.lake.question import Question
from edgewake.cloud.ops.routes.sql import seconds_of
from edgewake.cloud.rights.config import RoleConfig
from edgewake.cloud.rights.principal import LIMITS, Limits, widest
from edgewake.protocol.errors import QueryError
from tests.access.test_shares import Client
from tests.feeds import Feed, unique
from tests.push.service import Service
from tests.rights.conftest import World
from tests.rights.keyed import keyed_server
from tests.rights.test_leases import asked, cursor_of
from tests.services import PATIENCE_S

KEYS: Final = "".join(f"{name} {name} key-of-{name}-00001\n" for name in ("few", "late", "many"))
FEW, LATE, MANY = (
    {"Authorization": f"Bearer key-of-{name}-00001"} for name in ("few", "late", "many")
)
NARROW: Final = "narrow-key-00000001"
"""tests/rights/conftest.py has its role: one of everything at a push proxy."""


def test_each_limit_is_a_key_of_a_role_and_a_value_of_a_principal() -> None:
    of_role = {name for name in RoleConfig.model_fields if name not in ("grants", "lease_s")}
    of_principal = {one.name for one in dataclasses.fields(Limits)} - {"lease_s"}
    assert set(LIMITS) == of_role == of_principal
    for name, limit in LIMITS.items():
        held = Limits(**{name: 3})
        assert held.refusal(name, 2) is None
        refused = held.refusal(name, 3)
        assert refused is not None
        assert refused.startswith(f"{name}: you have 3 {limit.what}")
        assert Limits().refusal(name, 10**9) is None


def test_of_several_roles_the_widest_counts() -> None:
    both = widest([Limits(streams_max=1, groups_max=5), Limits(streams_max=3, lease_s=9.0)])
    assert both == Limits(streams_max=3, lease_s=9.0)
    assert widest([]) == Limits()


def unread(stack: ExitStack, port: int, path: str, who: dict[str, str]) -> int:
    """The status of a stream that stays open and of which one event is read: it reads the past."""
    line = stack.enter_context(socket.socket())
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.settimeout(PATIENCE_S)
    line.connect(("127.0.0.1", port))
    heads = "".join(f"{name}: {value}\r\n" for name, value in who.items())
    line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{heads}\r\n".encode())
    got = line.recv(64)
    status = int(got.split()[1])
    while status == httpx.codes.OK and b"\ndata:" not in got:
        got += line.recv(4096)
    return status


def some(server: Feed, **limits: Any) -> dict[str, Any]:
    return {"grants": [{"streams": [f"{server.name}*"]}], **limits}


@pytest.mark.services
async def test_what_is_read_is_bounded_by_role(
    kafka_config: KafkaConfig, tmp_path: Path, feed: Feed
) -> None:
    other = Feed(kafka_config, name=f"{feed.name}_other")
    try:
        other.send(n=1)
        for one in (feed, other):  # more than fits between a server and who does not read
            one.send("car-1", 100, frames=2000)
        roles = {
            "few": some(feed, subscriptions_max=2, copies_max=1),
            "late": some(feed, past_max=1),
            "many": some(feed),
        }
        with keyed_server(tmp_path, kafka_config, roles, KEYS) as target:
            path = f"/v1/streams/{feed.name}/events"
            async with AsyncExitStack() as stack:
                client = Client(stack, target.port, "127.0.0.2")
                filters = [f"{path}?where=n%20%3E%20{n}" for n in range(3)]
                assert [await client.get(one, **FEW) for one in filters] == [200, 200, 503]
                assert await client.get(filters[0], **FEW) == 200, "one that it reads already"
                assert await client.get(path, **FEW) == 200, "what everybody uses"
                assert await client.get(filters[2], **MANY) == 200, "nobody else"
            # Two that begin at one place of one stream share it.
            past = [f"/v1/streams/{one.name}/events?from=earliest" for one in (feed, other)]
            for who, expected in ((LATE, [200, 503]), (MANY, [200, 200])):
                with ExitStack() as sockets:
                    found = [unread(sockets, target.port, one, who) for one in past]
                    assert found == expected
            async with httpx.AsyncClient(base_url=target.url, timeout=PATIENCE_S) as http:

                async def copy(name: str, who: dict[str, str]) -> tuple[int, str]:
                    """Asked for again while what is there is still being read."""
                    async with asyncio.timeout(PATIENCE_S):
                        while True:
                            answer = await http.get(f"/v1/latest/{name}", headers=who)
                            why = answer.json().get("detail", "")
                            if answer.status_code != 503 or "being read" not in why:
                                return answer.status_code, why
                            await asyncio.sleep(0.2)

                assert (await copy(feed.name, FEW))[0] == 200
                status, why = await copy(other.name, FEW)
                assert (status, why[:12]) == (503, "copies_max: ")
                assert (await copy(other.name, MANY))[0] == 200
                assert (await copy(other.name, FEW))[0] == 200, "one that is kept for another"
    finally:
        other.close()


@pytest.mark.services
async def test_what_is_left_at_a_push_proxy_is_bounded_by_role(
    rights_world: World, push: Service
) -> None:
    stream = {"streams": [rights_world.mine.name]}
    delivery, group = stream | {"url": "http://127.0.0.1:9/hook"}, stream
    lease = {
        "subscription": stream,
        "cursor": await cursor_of(rights_world, rights_world.mine.name),
        "endpoint": {"type": "relay"},
    }
    for limit, method, paths, body in (
        ("deliveries_max", "PUT", [f"/v1/deliveries/{unique('d')}" for _ in range(2)], delivery),
        ("groups_max", "PUT", [f"/v1/groups/{unique('g')}" for _ in range(2)], group),
        ("leases_max", "POST", ["/v1/leases"] * 2, lease),
    ):
        first, second = [await served(push, method, path, body) for path in paths]
        assert first.status_code == 201, first.text
        assert second.status_code == 429
        assert second.json()["detail"].startswith(f"{limit}: you have 1 "), second.text
        if method == "PUT":
            assert (await asked(push, "PUT", paths[0], NARROW, body)).status_code == 200
            assert (await asked(push, "DELETE", paths[0], NARROW)).status_code == 204
        else:
            path = f"/v1/leases/{first.json()['id']}"
            gone = await asked(push, "DELETE", path, first.json()["token"])
            assert gone.status_code == 204


async def served(push: Service, method: str, path: str, body: object) -> httpx.Response:
    """Its answer once it has what it keeps: it has just started."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = await asked(push, method, path, NARROW, body)
            if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                return answer
            await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("words", "most", "seconds"),
    [({}, None, 10.0), ({}, 3.0, 3.0), ({}, 30.0, 10.0), ({"seconds": 2.0}, 3.0, 2.0)],
)
def test_a_question_takes_no_longer_than_its_role_allows(
    words: dict[str, Any], most: float | None, seconds: float
) -> None:
    holder = SimpleNamespace(principal=SimpleNamespace(limits=Limits(sql_s_max=most)))
    assert seconds_of(Question(sql="SELECT 1", **words), holder) == seconds  # type: ignore[arg-type]


def test_a_question_that_asks_for_longer_is_refused_by_name() -> None:
    holder = SimpleNamespace(principal=SimpleNamespace(limits=Limits(sql_s_max=3.0)))
    with pytest.raises(QueryError, match="sql_s_max: your role allows 3 seconds"):
        seconds_of(Question(sql="SELECT 1", seconds=4.0), holder)  # type: ignore[arg-type]
