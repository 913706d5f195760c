"""One client takes its share of a server and leaves the rest.

Attackers and others are addresses of the loopback; all else is real.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from tests.access.world import Server, server
from tests.feeds import DEADLINE_S, Feed

ATTACKER, OTHER, PROXY = "127.0.0.2", "127.0.0.3", "127.0.0.4"
ATTACKS = 500
SMALL = {"views_max": 100, "followed_max": 20}
AT_ONCE = 50


class Client:
    """Sends requests from one address and keeps the connections."""

    def __init__(self, stack: AsyncExitStack, port: int, address: str) -> None:
        self._stack, self._port, self._address = stack, port, address
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def get(self, path: str, **headers: str) -> int:
        """The answer's status; the connection stays open as long as the server lets it."""
        async with self._at_once, asyncio.timeout(DEADLINE_S):
            try:
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", self._port, local_addr=(self._address, 0)
                )
                self._stack.push_async_callback(_gone, writer)
                lines = "".join(
                    f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()
                )
                writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode())
                status = int((await reader.readline()).split()[1])
                if status != 200:
                    writer.transport.abort()
                return status
            except (ConnectionError, IndexError):
                return 503  # refused before its request was read


async def _gone(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@asynccontextmanager
async def clients(target: Server, *addresses: str) -> AsyncIterator[list[Client]]:
    async with AsyncExitStack() as stack:
        yield [Client(stack, target.port, address) for address in addresses]


@pytest.fixture
def shared(
    access_directory: Path, kafka_config: KafkaConfig, cursor_key: Path
) -> Callable[..., object]:
    """Makes servers with small bounds."""

    def made(**settings: object) -> object:
        return server(
            access_directory,
            kafka_config,
            cursor_key,
            **{"hub": SMALL, "clients_max": 400, **settings},
        )  # type: ignore[arg-type]

    return made


def filtered(feed: Feed, number: int) -> str:
    return f"/v1/streams/{feed.name}/events?where={quote(f'n > {number}')}"


async def attack(attacker: Client, feed: Feed) -> list[int]:
    """500 streams, each with another filter, and each says that it is somebody else."""
    return await asyncio.gather(
        *(
            attacker.get(filtered(feed, n), X_Forwarded_For=f"198.51.100.{n % 250}")
            for n in range(ATTACKS)
        )
    )


async def test_an_attacker_with_500_filters_leaves_the_server_to_others(
    shared: Callable[..., object], feed: Feed
) -> None:
    with shared() as target:  # type: ignore[attr-defined]
        async with clients(target, ATTACKER, OTHER) as (attacker, other):
            statuses = await attack(attacker, feed)
            assert (statuses.count(200), statuses.count(503)) == (20, ATTACKS - 20), (
                "the attack was there, and got a fourth of the filters"
            )
            assert await other.get(f"/v1/streams/{feed.name}/events") == 200
            assert [await other.get(filtered(feed, 1000 + n)) for n in range(10)] == [200] * 10
            assert await other.get(f"/v1/latest/{feed.name}") == 200
            assert [
                await other.get(path)
                for path in ("/healthz", "/readyz", "/metrics", "/v1/streams", "/")
            ] == [200] * 5
            assert await attacker.get(f"/v1/streams/{feed.name}/events") == 200, (
                "what everybody uses is served to the attacker, too"
            )


@pytest.mark.long
async def test_the_control_without_shares_one_attacker_shuts_the_server(
    access_directory: Path, kafka_config: KafkaConfig, cursor_key: Path, feed: Feed
) -> None:
    settings = {"hub": SMALL, "clients_max": 400}
    with server(
        access_directory,
        kafka_config,
        cursor_key,
        module="tests.access.unshared_server",
        **settings,
    ) as target:
        async with clients(target, ATTACKER, OTHER) as (attacker, other):
            assert (await attack(attacker, feed)).count(200) >= SMALL["views_max"] * 0.8
            assert await other.get(filtered(feed, 1000)) == 503


@pytest.mark.long
async def test_streams_alike_are_bounded_by_client_as_well(
    shared: Callable[..., object], feed: Feed
) -> None:
    with shared(clients_max=80) as target:  # type: ignore[attr-defined]
        async with clients(target, ATTACKER, OTHER) as (attacker, other):
            statuses = await asyncio.gather(
                *(attacker.get(f"/v1/streams/{feed.name}/events") for _ in range(200))
            )
            assert statuses.count(200) == 20
            assert await other.get(f"/v1/streams/{feed.name}/events") == 200


@pytest.mark.long
async def test_connections_that_ask_nothing_leave_health_to_others(
    shared: Callable[..., object],
) -> None:
    with shared(clients_max=1, address_share=0.1) as target:  # type: ignore[attr-defined]
        async with AsyncExitStack() as stack:
            readers = []
            for _ in range(300):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", target.port, local_addr=(ATTACKER, 0)
                )
                stack.push_async_callback(_gone, writer)
                readers.append(reader)
            async with asyncio.timeout(DEADLINE_S):
                refused = [await reader.read(12) for reader in readers[100:]]
            assert refused == [b"HTTP/1.1 503"] * 200, "a tenth of a thousand is let in"
            other = Client(stack, target.port, OTHER)
            assert await other.get("/healthz") == 200


async def test_behind_a_proxy_of_ours_clients_are_told_apart_and_nobody_else_chooses_its_address(
    shared: Callable[..., object], feed: Feed
) -> None:
    with shared(trusted_proxies=[f"{PROXY}/32"], clients_max=8) as target:  # type: ignore[attr-defined]
        async with clients(target, PROXY, OTHER) as (proxy, other):
            path = f"/v1/streams/{feed.name}/events"
            assert [
                await proxy.get(path, X_Forwarded_For=f"203.0.113.9, 198.51.100.{n % 2}")
                for n in range(6)
            ] == [200] * 4 + [503] * 2
            assert [await other.get(path, X_Forwarded_For=f"198.51.100.{n}") for n in range(4)] == [
                200
            ] * 2 + [503] * 2


@pytest.mark.long
async def test_streams_that_one_client_alone_has_followed_are_its_share_and_idle_ones_give_way(
    shared: Callable[..., object], new_feed: Callable[..., Feed]
) -> None:
    feeds = [new_feed(partitions=1) for _ in range(6)]
    paths = [f"/v1/streams/{feed.name}/events" for feed in feeds]
    with shared(hub={"followed_max": 4, "views_max": 100}, address_share=0.5) as target:  # type: ignore[attr-defined]
        async with clients(target, OTHER, PROXY) as (other, third):
            async with clients(target, ATTACKER) as (attacker,):
                assert [await attacker.get(path) for path in paths[:3]] == [200, 200, 503]
                assert await other.get(paths[0]) == 200, "what is followed already costs nothing"
                assert await other.get(paths[4]) == 200
            async with asyncio.timeout(DEADLINE_S):
                # What the attacker left gives way as soon as it is gone.
                while await third.get(paths[5]) != 200:
                    await asyncio.sleep(0.05)
