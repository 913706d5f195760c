"""Clients that hang up while their stream is being opened, at every moment there is, leave nothing
behind.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from edgewake.cloud.access import app as application
from edgewake.cloud.access.config import AccessConfig
from edgewake.cloud.access.connection import Connection, Protocol, connection_of
from edgewake.cloud.access.latest.latest_stores import LatestStores
from edgewake.cloud.access.metrics import Metrics
from edgewake.cloud.access.open_streams import OpenStreams
from edgewake.cloud.access.reports.lease_reports import LeaseReports
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.hub_bounds import HubBounds
from edgewake.cloud.rights.config import ANYBODY_CONFIG
from edgewake.cloud.rights.rights import Rights
from edgewake.cloud.web import http_part
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.cursor import CursorCodec, CursorKeys
from tests.access.test_faults import metric
from tests.access.world import server
from tests.feeds import DEADLINE_S, Feed, eventually
from tests.services import free_ports, part, wait_until

STORM = 540
"""More than the views that a server allows."""


@dataclass
class HangUp:
    """The connection is lost when the request, in whatever task, waits for the `at`-th time."""

    at: int
    connection: Connection
    waits: int = 0
    fired: bool = False

    def wait(self) -> None:
        self.waits += 1
        if self.waits == self.at:
            self.fired = True
            self.connection.abort()


_request: ContextVar[HangUp | None] = ContextVar("request", default=None)


class Watched:
    """Awaits a coroutine and notes each time that it waits."""

    def __init__(self, work: Coroutine[Any, Any, Any], hang_up: HangUp) -> None:
        self._work, self._hang_up = work, hang_up

    def __await__(self) -> Generator[Any, Any, Any]:
        sent: Any = None
        step: Callable[[Any], Any] = self._work.send
        while True:
            try:
                waited_for = step(sent)
            except StopIteration as end:
                return end.value
            self._hang_up.wait()
            try:
                sent, step = (yield waited_for), self._work.send
            except BaseException as error:
                sent, step = error, self._work.throw


def watched_tasks(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
    """A task factory: tasks that a request makes are watched with it."""
    hang_up = _request.get()

    async def run() -> Any:
        return await Watched(work, hang_up)  # type: ignore[arg-type]

    return asyncio.Task(work if hang_up is None else run(), loop=loop, **more)


@dataclass
class Running:
    """An access server in this process."""

    port: int
    hub: Hub
    streams: OpenStreams
    hang_up_at: int = 0
    latest: HangUp | None = None

    def is_empty(self) -> bool:
        readers = [entry.readers for entry in self.hub.streams.by_name.values()]
        return not (
            len(self.streams)
            or self.hub.views
            or self.hub.cohorts_reading
            or any(readers)
            or self.streams.behind
        )


@asynccontextmanager
async def server_here(config: KafkaConfig) -> AsyncIterator[Running]:
    """As `edgewake access` wires it, with requests that lose their connection."""
    settings = AccessConfig(kafka=config)
    clock, metrics = SystemClock(), Metrics()
    hub = Hub(
        HubBounds(idle_s=0, tail_back_records=5),
        config,
        name="hang-ups",
        codec=CursorCodec(CursorKeys({1: b"k" * 32}, 1)),
        clock=clock,
    )
    rights = Rights(ANYBODY_CONFIG, clock)
    streams = OpenStreams(settings, metrics, hub, rights=rights, clock=clock, rng=random.Random(1))
    leases = LeaseReports(config, "hang-ups", clock)
    app = application.build(
        settings,
        hub=hub,
        streams=streams,
        latest=LatestStores(hub, clock),
        leases=leases,
        metrics=metrics,
        rights=rights,
        clock=clock,
    )
    listener = http_part.bind("127.0.0.1", 0)
    running = Running(listener.getsockname()[1], hub, streams)

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        running.latest = HangUp(running.hang_up_at, connection_of(scope))
        _request.set(running.latest)
        await Watched(app(scope, receive, send), running.latest)

    stop, is_listening = asyncio.Event(), asyncio.Event()
    tasks = [asyncio.create_task(hub.run()), asyncio.create_task(streams.run())]
    serving = asyncio.create_task(
        http_part.serve(
            watched, listener, stop=stop, on_ready=is_listening.set, protocol=Protocol, grace_s=1
        )
    )
    asyncio.get_running_loop().set_task_factory(watched_tasks)
    try:
        async with asyncio.timeout(DEADLINE_S):
            await hub.catalogue.looked.wait()
            await is_listening.wait()
        yield running
    finally:
        asyncio.get_running_loop().set_task_factory(None)
        stop.set()
        await serving
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def ask(port: int, path: str, cursor: str) -> bytes:
    """What comes until the first byte of an answer's body, or until the connection is lost."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nLast-Event-ID: {cursor}\r\n\r\n".encode()
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            head = await reader.readuntil(b"\r\n\r\n")
            return head + await reader.read(1)
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
    finally:
        writer.transport.abort()


WAITS = 3
"""At which the opening of a stream waits, at least."""


@pytest.mark.parametrize(
    "start", ["from=latest", "from=earliest&where=n%3E3", "from=-30d", "cursor"]
)
async def test_a_connection_that_is_lost_at_any_wait_of_opening_leaves_nothing(
    kafka_config: KafkaConfig, new_feed: Callable[..., Feed], start: str
) -> None:
    feed = new_feed(partitions=1)
    feed.send(n=1, frames=20)
    path = f"/v1/streams/{feed.name}/events?{'' if start == 'cursor' else start}"
    async with server_here(kafka_config) as running:
        cursor = ""
        if start == "cursor":  # of records that are no longer kept, so that Kafka is asked twice
            first = await ask(running.port, f"/v1/streams/{feed.name}/events?from=earliest", "")
            cursor = next(
                line for line in first.decode().split("\r\n") if line.startswith("edgewake-cursor")
            ).split(": ")[1]
            feed.trim(0, 2)
        at = 1
        for _ in range(200):
            await eventually(running.is_empty, "nothing is left")
            running.hub._drop_idle()
            running.hub.kafka._known.clear()
            assert running.hub.streams.by_name == {}
            running.hang_up_at = at
            answer = await ask(running.port, path, cursor)
            assert running.latest is not None
            if running.latest.fired:
                at += 1
                continue
            assert answer.startswith(b"HTTP/1.1 200"), "the control: nothing was cut"
            # Fewer on a busy machine, where what is waited for is there already: then once more.
            if at > WAITS:
                break
        await eventually(running.is_empty, "nothing is left")
        assert at > WAITS


async def test_a_storm_of_clients_that_open_and_drop_takes_no_place_from_others(
    access_directory: Path, kafka_config: KafkaConfig, cursor_key: Path, feed: Feed
) -> None:
    feed.send(n=3)
    with server(access_directory, kafka_config, cursor_key) as stormy:
        asked = 0
        for i in range(STORM):
            with socket.create_connection(("127.0.0.1", stormy.port)) as client:
                words = (
                    f"/v1/streams/{feed.name}/events?from={'1' if i % 2 else 'earliest'}&"
                    f"where=n%3E{i}"
                )
                client.sendall(f"GET {words} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
                asked += 1
            await asyncio.sleep(0)
        await eventually(
            lambda: metric(stormy, "edgewake_access_clients ") == 0, "no stream is left"
        )
        assert (
            metric(stormy, "edgewake_access_views "),
            metric(stormy, "edgewake_access_cohorts "),
        ) == (0, 0)
        url = f"{stormy.url}/v1/streams/{feed.name}/events?where=n%3C0"
        async with (
            httpx.AsyncClient(timeout=DEADLINE_S) as client,
            client.stream("GET", url) as answer,
        ):
            assert answer.status_code == 200
            assert metric(stormy, "edgewake_access_views ") == 1
        assert asked == STORM


@pytest.mark.long
def test_streams_that_are_still_being_opened_count_too(tmp_path: Path) -> None:
    """Kafka is away, so opening takes seconds: the one that is too much is refused at once."""
    port, nobody = free_ports(2)
    config = tmp_path / "access.toml"
    text = (
        f'port = {port}\nclients_max = 2\naddress_share = 1\ncursor_key_file = "{tmp_path}/key"\n'
    )
    config.write_text(text + f'[kafka]\nbootstrap = "127.0.0.1:{nobody}"\n')
    (tmp_path / "key").write_text(f"1 {'ab' * 32}\n")
    with part("access", config, tmp_path / "log") as process:
        process.wait_for("kafka.away")
        request = b"GET /v1/streams/x/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        with (
            socket.create_connection(("127.0.0.1", port)) as one,
            socket.create_connection(("127.0.0.1", port)) as two,
        ):
            for client in (one, two):
                client.sendall(request)
            figures = f"http://127.0.0.1:{port}/metrics"
            wait_until(
                lambda: (
                    "edgewake_access_clients 2.0" in httpx.get(figures, timeout=DEADLINE_S).text
                ),
                "both sit",
            )
            refused = httpx.get(f"http://127.0.0.1:{port}/v1/streams/x/events", timeout=DEADLINE_S)
            assert (refused.status_code, refused.json()["detail"]) == (
                503,
                "this server already serves 2 streams",
            )
            one.settimeout(DEADLINE_S)
            answer = b""
            while b"unavailable" not in answer:  # head and body may come apart
                more = one.recv(4096)
                assert more, answer
                answer += more
