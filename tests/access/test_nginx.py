"""The shipped proxy configuration, in the real nginx in front of real access servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Page
from playwright.async_api import TimeoutError as NotLoaded
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.cursor import PARTITIONS_MAX, Cursor, CursorCodec, CursorKeys, StreamPosition
from tests.access.test_readers import FOLLOW_ALL, JS, NODE
from tests.access.world import Server, numbers, open_stream, server
from tests.chromium import chromium
from tests.deploy.production import certificates
from tests.feeds import DEADLINE_S, Feed, eventually
from tests.services import PATIENCE_S, Process, free_ports

PER_CLIENT = 20
"""Connections of one client, in the place of some hundred."""
SHIPPED = Path(__file__).parents[2] / "deploy" / "compose" / "nginx.conf"


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What certificates.sh makes for the proxy, with `ca.crt`, which clients trust."""
    folder = tmp_path_factory.mktemp("certificates")
    done = certificates(folder)
    assert done.returncode == 0, done.stderr
    shutil.copy(folder / "broker" / "devices-ca.crt", folder / "front" / "ca.crt")
    return folder / "front"


@dataclass(frozen=True)
class Proxy:
    """Where it listens."""

    port: int
    tls_port: int
    devices_port: int


@asynccontextmanager
async def nginx(
    folder: Path,
    front: Path,
    access_ports: list[int],
    changes: Sequence[tuple[str, str]] = (),
    bridge_ports: Sequence[int] = (1,),
) -> AsyncIterator[Proxy]:
    """nginx with the shipped file: only addresses and files of the container are others, and
    what `changes` replaces.
    """
    port, tls_port, devices_port = free_ports(3)
    one, other = [*access_ports, *access_ports][:2]
    bridge, other_bridge = [*bridge_ports, *bridge_ports][:2]
    text = SHIPPED.read_text()
    for pattern, replacement in (
        (" /tmp/", f" {folder}/"),  # first: the other paths are of this test, and may lie there
        ("access-1:8700 resolve", f"127.0.0.1:{one}"),
        ("access-2:8700 resolve", f"127.0.0.1:{other}"),
        ("push:8703 resolve", "127.0.0.1:1"),
        ("bridge-1:8086 resolve", f"127.0.0.1:{bridge}"),
        ("bridge-2:8086 resolve", f"127.0.0.1:{other_bridge}"),
        ("listen 8444 ssl;", f"listen 127.0.0.1:{devices_port} ssl;"),
        ("access_log /dev/stdout devices;", f"access_log {folder}/devices.log devices;"),
        ("listen 8700", f"listen 127.0.0.1:{port}"),
        # `http2 on` is of 1.25.1 and newer; before, it was a word of `listen`.
        ("listen 8443 ssl;", f"listen 127.0.0.1:{tls_port} ssl http2;"),
        ("http2 on;", ""),
        ("/run/secrets/front.crt", f"{front}/server.crt"),
        ("/run/secrets/front.key", f"{front}/server.key"),
        ("access_log /dev/stdout front;", f"access_log {folder}/access.log front;"),
        # So that 127.0.0.2 is somebody from elsewhere.
        ("127.0.0.0/8 1;", "127.0.0.1/32 1;"),
        ("worker_connections 30000", "worker_connections 1000"),
        ("limit_conn per_client 400;", f"limit_conn per_client {PER_CLIENT};"),
        *changes,
    ):
        assert pattern in text, pattern
        text = text.replace(pattern, replacement)
    (folder / "nginx.conf").write_text(re.sub(r"resolver .*;", "", text))
    words = ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]
    running = Process([*words, "-g", "daemon off;"], folder / "nginx.log")
    await asyncio.to_thread(running.start)
    try:
        await eventually(
            lambda: answers(port) or not running.is_running(), f"nginx answers: {running.log}"
        )
        assert running.is_running(), running.output()
        yield Proxy(port, tls_port, devices_port)
    finally:
        running.stop()


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/proxy-health", timeout=5).status_code == 204
    except httpx.HTTPError:
        return False


async def test_a_ticket_reaches_the_server_that_gave_it(
    access_a: Server, access_b: Server, front: Path, tmp_path: Path
) -> None:
    async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
        ticket = (await client.post(f"{access_a.url}/v1/tickets")).json()["ticket"]
        elsewhere = await client.get(f"{access_b.url}/v1/streams?ticket={ticket}")
        assert elsewhere.status_code == 401, "the control"
        async with nginx(tmp_path, front, [access_a.port, access_b.port]) as proxy:
            base = f"http://127.0.0.1:{proxy.port}/v1"
            for _ in range(8):
                ticket = (await client.post(f"{base}/tickets")).json()["ticket"]
                assert (await client.get(f"{base}/streams?ticket={ticket}")).status_code == 200
            assert (await client.get(f"{base}/streams?ticket={ticket}")).status_code == 401


async def test_events_come_through_the_proxy_as_they_happen_and_with_the_largest_cursor(
    access_a: Server, access_b: Server, feed: Feed, front: Path, tmp_path: Path
) -> None:
    row = ((2**48 - 1, 2**21 - 1),) * (PARTITIONS_MAX // 16)
    largest = CursorCodec(CursorKeys({1: b"k" * 32}, 1)).encode(
        Cursor((StreamPosition(b"name", b"gene", row),) * 16)
    )
    async with nginx(tmp_path, front, [access_a.port, access_b.port]) as proxy:
        for query in ({}, {"last_event_id": largest}):
            async with open_stream(
                f"http://127.0.0.1:{proxy.port}",
                feed.name,
                cursor=largest,
                on_gap="latest",
                **query,
            ) as stream:
                await stream.until_cursor()
                await asyncio.to_thread(feed.send)
                assert len(numbers(await stream.take(1))) == 1


async def test_clients_come_over_tls_with_http_1_and_2_and_know_whom_they_talk_to(
    access_a: Server, feed: Feed, front: Path, tmp_path: Path
) -> None:
    known, stranger = (
        ssl.create_default_context(cafile=str(front / "ca.crt")),
        ssl.create_default_context(),
    )
    async with nginx(tmp_path, front, [access_a.port]) as proxy:
        address = f"https://localhost:{proxy.tls_port}"
        for context, is_trusted in ((known, True), (stranger, False)):
            async with httpx.AsyncClient(verify=context, timeout=DEADLINE_S) as client:
                if not is_trusted:
                    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                        await client.get(f"{address}/healthz")
                    continue
                async with client.stream(
                    "GET", f"{address}/v1/streams/{feed.name}/events"
                ) as answer:
                    await asyncio.to_thread(feed.send)
                    assert any(
                        [
                            line.startswith("data") and feed.name in line
                            async for line in until_data(answer, feed.name)
                        ]
                    )
        words = [
            "curl",
            "-sS",
            "--http2",
            "--cacert",
            str(front / "ca.crt"),
            "-o",
            "/dev/null",
            "-w",
            "%{http_version} %{http_code}",
        ]
        done = await asyncio.to_thread(
            subprocess.run,
            [*words, f"{address}/v1/streams"],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert done.stdout == "2 200", done.stderr
        assert (
            await asyncio.to_thread(httpx.get, f"http://localhost:{proxy.tls_port}/healthz")
        ).status_code == 400


TABS = 8
SIX = 6
"""Connections that a browser opens to a server over HTTP/1.1, all tabs together."""
WAITS_MS = 3000


@asynccontextmanager
async def tabs_at(base: str, feed: Feed) -> AsyncIterator[Callable[[], Awaitable[Page]]]:
    """Opens tabs of one browser, each with a page of this server that follows the stream."""
    async with chromium() as browser:
        context = await browser.new_context(ignore_https_errors=True)
        context.set_default_timeout(1000 * DEADLINE_S)

        async def tab() -> Page:
            page = await context.new_page()
            await page.goto(f"{base}/healthz", timeout=WAITS_MS)
            await page.evaluate(FOLLOW_ALL, f"{base}/v1/streams/{feed.name}/events")
            await page.wait_for_function("source.readyState == 1")
            return page

        yield tab


@pytest.mark.long
@pytest.mark.asyncio(loop_scope="session")
async def test_eight_tabs_of_a_browser_are_live_over_http_2(
    access_a: Server, new_feed: Callable[..., Feed], front: Path, tmp_path: Path
) -> None:
    """A hundred streams share one connection."""
    feed = new_feed(partitions=1)
    async with (
        nginx(tmp_path, front, [access_a.port]) as proxy,
        tabs_at(f"https://127.0.0.1:{proxy.tls_port}", feed) as tab,
    ):
        pages = [await tab() for _ in range(TABS)]
        feed.send(fields={"n": [7], "text": ["x"]})
        for page in pages:
            await page.wait_for_function("got.length == 1")
            entry = "performance.getEntriesByType('navigation')[0].nextHopProtocol"
            assert await page.evaluate(entry) == "h2"


@pytest.mark.long
@pytest.mark.asyncio(loop_scope="session")
async def test_over_http_1_the_seventh_tab_does_not_load_until_another_one_is_closed(
    access_a: Server, new_feed: Callable[..., Feed], front: Path, tmp_path: Path
) -> None:
    """As docs/ways.md says: the control of the eight."""
    feed = new_feed(partitions=1)
    async with (
        nginx(tmp_path, front, [access_a.port]) as proxy,
        tabs_at(f"http://127.0.0.1:{proxy.port}", feed) as tab,
    ):
        pages = [await tab() for _ in range(SIX)]
        feed.send(fields={"n": [7], "text": ["x"]})
        for page in pages:
            await page.wait_for_function("got.length == 1")
        with pytest.raises(NotLoaded):
            await tab()
        await pages[0].close()
        seventh = await tab()
        feed.send(fields={"n": [8], "text": ["x"]})
        await seventh.wait_for_function("got.length == 1")


async def until_data(answer: httpx.Response, wanted: str) -> AsyncIterator[str]:
    """Its lines up to the first event of a stream."""
    async for line in answer.aiter_lines():
        yield line
        if line.startswith("data") and wanted in line:
            return


async def test_a_websocket_comes_through_the_proxy(
    access_a: Server, access_b: Server, tmp_path: Path, front: Path, feed: Feed
) -> None:
    """Of a program and of a page, with TLS and without; another site's page is refused."""
    trusted = ssl.create_default_context(cafile=str(front / "ca.crt"))
    trusted.check_hostname = False
    feed.send(n=5)
    async with nginx(tmp_path, front, [access_a.port, access_b.port]) as proxy:
        plain = f"ws://127.0.0.1:{proxy.port}/v1/ws"
        secure = f"wss://127.0.0.1:{proxy.tls_port}/v1/ws"
        asked: list[tuple[str, dict[str, Any]]] = [
            (plain, {}),
            (plain, {"origin": f"http://127.0.0.1:{proxy.port}"}),
            (secure, {"ssl": trusted, "origin": f"https://127.0.0.1:{proxy.tls_port}"}),
        ]
        for url, more in asked:
            async with asyncio.timeout(DEADLINE_S), connect(url, **more) as socket:
                assert "sec-websocket-extensions" not in socket.response.headers
                words = {"type": "subscribe", "id": "a", "streams": [feed.name], "from": "earliest"}
                await socket.send(json.dumps(words))
                events: list[dict[str, dict[str, int]]] = []
                while len(events) < 5:
                    events += json.loads(await socket.recv()).get("events", [])
                assert [event["data"]["n"] for event in events] == [1, 2, 3, 4, 5]
        with pytest.raises(InvalidStatus) as refused:
            await connect(plain, origin="https://evil.example.org").__aenter__()
        assert refused.value.response.status_code == 403


async def test_while_all_servers_are_away_streams_are_told_to_come_again_and_everything_else_is_502(
    front: Path, tmp_path: Path
) -> None:
    async with (
        nginx(tmp_path, front, free_ports(2)) as proxy,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{proxy.port}", timeout=10) as client,
    ):
        for path in ("/v1/events?stream=s", "/v1/streams/s/events?where=n%3E1"):
            answer = await client.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (
                200,
                "text/event-stream",
            )
            assert re.fullmatch(r"retry: (1000|1500|2000|2500)\n\n", answer.text)
        assert (await client.get("/v1/streams")).status_code == 502


SECRET = f"{'ab' * 12}.{'cd' * 24}"


def status(proxy: Proxy, path: str, *, client: str, method: str = "GET") -> int:
    """Of an answer to an address of the loopback."""
    with httpx.Client(
        transport=httpx.HTTPTransport(local_address=client), timeout=PATIENCE_S
    ) as http:
        return http.request(method, f"http://127.0.0.1:{proxy.port}{path}").status_code


async def test_what_is_ours_is_not_shown_to_everybody(
    access_a: Server, front: Path, tmp_path: Path
) -> None:
    async with nginx(tmp_path, front, [access_a.port]) as proxy:
        for path in (
            "/docs",
            "/docs/swagger-ui.css",
            "/openapi.json",
            "/asyncapi.json",
            "/v1/server",
        ):
            assert (
                status(proxy, path, client="127.0.0.1"),
                status(proxy, path, client="127.0.0.2"),
            ) == (200, 404), path
        assert [
            status(proxy, "/metrics", client=client) for client in ("127.0.0.1", "127.0.0.2")
        ] == [404, 404]
        # The push proxy is away: 502 is that a request was passed on to it.
        for method, seen in (("POST", 404), ("GET", 502), ("PATCH", 502), ("DELETE", 502)):
            assert status(proxy, "/v1/leases/x", client="127.0.0.2", method=method) == seen, method
        assert status(proxy, "/v1/leases", client="127.0.0.1", method="POST") == 502
        for client, seen in (("127.0.0.2", 404), ("127.0.0.1", 502)):
            for path in ("/v1/deliveries/x", "/v1/groups/x"):
                assert status(proxy, path, client=client, method="PUT") == seen, (path, client)
        assert status(proxy, "/v1/groups/x/take", client="127.0.0.2", method="POST") == 502
        assert status(proxy, "/v1/streams", client="127.0.0.2") == 200, (
            "the control: what is for everybody"
        )


async def test_no_log_of_the_proxy_has_a_token_or_a_cursor(
    access_a: Server, feed: Feed, front: Path, tmp_path: Path
) -> None:
    """Whoever read it could change the webhook or end the lease.

    Also where the servers are away, which is logged as an error.
    """
    async with nginx(tmp_path, front, [access_a.port]) as proxy:
        async with open_stream(f"http://127.0.0.1:{proxy.port}", feed.name, lease=SECRET) as stream:
            cursor = await stream.until_cursor()
        async with open_stream(
            f"http://127.0.0.1:{proxy.port}", feed.name, last_event_id=cursor
        ) as stream:
            assert stream.status == 200
        await eventually(
            lambda: (tmp_path / "access.log").read_text().count("/v1/events") >= 2,
            "both are logged",
        )
        assert status(proxy, f"/v1/leases/x?token={SECRET}", client="127.0.0.1") == 502
    logged = (tmp_path / "access.log").read_text() + (tmp_path / "nginx.log").read_text()
    assert '"GET /v1/events HTTP/1.1" 200' in logged
    assert not [word for word in (SECRET, cursor, "?") if word in logged]


async def gone(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_one_client_s_connections_are_bounded_and_others_are_served(
    access_a: Server, feed: Feed, front: Path, tmp_path: Path
) -> None:
    path = f"/v1/streams/{feed.name}/events"
    async with nginx(tmp_path, front, [access_a.port]) as proxy, AsyncExitStack() as stack:

        async def first_bytes(client: str) -> bytes:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", proxy.port, local_addr=(client, 0)
            )
            stack.push_async_callback(gone, writer)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            return await reader.readuntil(b"\r\n\r\n")

        async with asyncio.timeout(2 * DEADLINE_S):
            heads = [await first_bytes("127.0.0.2") for _ in range(PER_CLIENT + 5)]
            told_to_come_later = [b"Edgewake-Start: later" in head for head in heads]
            assert told_to_come_later == [False] * PER_CLIENT + [True] * 5
            assert b"Edgewake-Start: later" not in await first_bytes("127.0.0.3")


ZONE = "limit_conn_zone $client_network"
NETWORKS = r'"~(?s)^(?<network>.{8}).{8}$" $network;'


@pytest.mark.parametrize(
    "is_protected", [True, pytest.param(False, id="control", marks=pytest.mark.long)]
)
async def test_all_addresses_of_an_ipv6_network_are_one_client(
    access_a: Server, feed: Feed, front: Path, tmp_path: Path, is_protected: bool
) -> None:
    """A provider gives each of its customers 2^64 addresses, and one of them may use them all.

    nginx takes the client's address from a header here, as it would from another proxy.
    """
    path = f"/v1/streams/{feed.name}/events"
    from_header = "set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For; "
    changes = [(ZONE, from_header + ZONE)]
    if not is_protected:
        changes.append((NETWORKS, ""))
    async with nginx(tmp_path, front, [access_a.port], changes) as proxy, AsyncExitStack() as stack:

        async def is_later(client: str) -> bool:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            stack.push_async_callback(gone, writer)
            head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: {client}\r\n\r\n"
            writer.write(head.encode())
            return b"Edgewake-Start: later" in await reader.readuntil(b"\r\n\r\n")

        async with asyncio.timeout(2 * DEADLINE_S):
            of_one = [await is_later(f"2001:db8:0:1::{n:x}") for n in range(1, PER_CLIENT + 6)]
            assert of_one == [False] * PER_CLIENT + [is_protected] * 5
            assert not await is_later("2001:db8:0:2::1"), "the next network"


async def test_what_an_access_server_refuses_is_passed_on(
    access_a: Server, front: Path, tmp_path: Path
) -> None:
    async with nginx(tmp_path, front, [access_a.port]) as proxy:
        answer = await asyncio.to_thread(
            httpx.get,
            f"http://127.0.0.1:{proxy.port}/v1/events?stream=no_such_stream",
            timeout=PATIENCE_S,
        )
    assert (answer.status_code, answer.json()["title"]) == (404, "unknown stream")


@pytest.mark.long
@pytest.mark.asyncio(loop_scope="session")
async def test_eventsource_survives_that_all_servers_are_away(
    access_directory: Path,
    kafka_config: KafkaConfig,
    cursor_key: Path,
    new_feed: Callable[..., Feed],
    browser_page: Page,
    front: Path,
    tmp_path: Path,
) -> None:
    """A browser's and npm's: with 502 both were closed for good."""
    feed = new_feed(partitions=1)

    def send(n: int) -> None:
        feed.send(fields={"n": [n], "text": ["x"]})

    with server(access_directory, kafka_config, cursor_key, retry_ms=200) as mortal:
        async with nginx(tmp_path, front, [mortal.port]) as proxy:
            address = f"http://127.0.0.1:{proxy.port}/v1/streams/{feed.name}/events?from=earliest"
            send(1)
            npm = await asyncio.create_subprocess_exec(
                *NODE, "eventsource", address, "2", stdout=subprocess.PIPE, cwd=JS
            )
            assert npm.stdout is not None
            await browser_page.goto(f"http://127.0.0.1:{proxy.port}/healthz")
            await browser_page.evaluate(FOLLOW_ALL, address)
            await browser_page.wait_for_function("got.length == 1", timeout=1000 * DEADLINE_S)
            first = json.loads(await asyncio.wait_for(npm.stdout.readline(), DEADLINE_S))
            async with browser_page.expect_response(
                lambda answer: answer.headers.get("edgewake-start") == "later"
            ):
                mortal.process.kill()
            await asyncio.to_thread(send, 2)
            await asyncio.to_thread(mortal.restart_after_kill)
            await browser_page.wait_for_function("got.length == 2", timeout=1000 * DEADLINE_S)
            second = json.loads(await asyncio.wait_for(npm.stdout.readline(), DEADLINE_S))
            assert await npm.wait() == 0
            assert (
                await browser_page.evaluate("got.map(r => r[0])")
                == [1, 2]
                == [first["n"], second["n"]]
            )
