"""Hostile clients of the servers that people read from: filters, heads and bodies byte by byte,
readers that read nothing, leases. What another reader sees beside them.

Attackers and victims are addresses of the loopback; all else is real.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from tests.access.test_faults import metric
from tests.access.world import Server, key_file, numbers, open_stream, server
from tests.feeds import Feed
from tests.hostile.victims import Count, Seen, note, slower, times_of_this_machine
from tests.hostile.world import World
from tests.push.service import Reader, Readings, readings, serving
from tests.services import PATIENCE_S, wait_until

pytestmark = pytest.mark.services

ATTACKER, VICTIM = "127.0.0.2", "127.0.0.3"
SMALL = {"views_max": 100, "followed_max": 20}
PROBES = 25
CONTROL = pytest.param(1, id="control", marks=pytest.mark.long)
"""The share of a client that may have all there is."""
DOORS = 300
"""Connections of an attacker. A fourth of a server's is one address's share: of 1001 here."""
DEAF = 60
"""Readers that read nothing."""
WAITING_MIB = 40
"""What a server may grow by for them: 144 KB for each, and what everybody uses."""
FULL = 1100
"""More than there are of all."""


@dataclass
class Attack:
    """What one client does, again and again, beside the victim."""

    port: int
    stack: ExitStack
    statuses: Counter[int] = field(default_factory=Counter)
    sockets: list[socket.socket] = field(default_factory=list)

    def connect(self) -> socket.socket:
        """One more connection, kept."""
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.bind((ATTACKER, 0))
        one.settimeout(PATIENCE_S)
        one.connect(("127.0.0.1", self.port))
        self.stack.enter_context(one)
        self.sockets.append(one)
        return one

    def ask(self, path: str) -> None:
        """A request whose answer is not read further than its status."""
        one = self.connect()
        try:
            one.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            self.statuses[int(one.recv(12).split()[1])] += 1
        except (OSError, IndexError):
            self.statuses[503] += 1  # refused before its request was read

    def trickle(self, text: bytes, at: int) -> None:
        """One byte on each connection."""
        for one in self.sockets:
            with suppress(OSError):  # the server may have had enough of it
                one.sendall(text[at % len(text) :][:1])


@contextmanager
def attack(port: int, act: Callable[[Attack, int], object]) -> Iterator[Attack]:
    """Act in a thread, in rounds from 0, until the end of the block; begun when round 0 is over."""
    stop, begun, failed = threading.Event(), threading.Event(), list[BaseException]()
    with ExitStack() as stack:
        made = Attack(port, stack)

        def run() -> None:
            try:
                number = 0
                while not stop.is_set():
                    act(made, number)
                    begun.set()
                    number += 1
                    time.sleep(0.05)
            except BaseException as error:  # raised below, in the test
                failed.append(error)
                begun.set()

        thread = threading.Thread(target=run, name="attack")
        thread.start()
        try:
            assert begun.wait(2 * PATIENCE_S), "the attack began"
            yield made
        finally:
            stop.set()
            thread.join(PATIENCE_S)
    if failed:
        raise failed[0]


def filters(feed: Feed) -> Callable[[Attack, int], None]:
    """A hundred streams, each with another filter, and then one more in each round."""

    def act(made: Attack, number: int) -> None:
        for n in range(100 if number == 0 else 1):
            where = quote(f"n > {1_000_000 + 100 * number + n}")
            made.ask(f"/v1/streams/{feed.name}/events?where={where}")

    return act


def heads(count: int) -> Callable[[Attack, int], None]:
    text = b"GET /v1/streams HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 1000

    def act(made: Attack, number: int) -> None:
        if number == 0:
            for _ in range(count):
                made.connect()
        made.trickle(text, number)

    return act


def bodies(count: int) -> Callable[[Attack, int], None]:
    head = b"POST /v1/tickets HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n"

    def act(made: Attack, number: int) -> None:
        if number == 0:
            for _ in range(count):
                with suppress(OSError):
                    made.connect().sendall(head)
        made.trickle(b"{" + b" " * 800, number)

    return act


def deaf(feed: Feed) -> Callable[[Attack, int], None]:
    """Streams from the beginning that are never read."""

    def act(made: Attack, number: int) -> None:
        if number == 0:
            for _ in range(DEAF):
                made.ask(f"/v1/streams/{feed.name}/events?from=earliest")

    return act


async def series(target: Server, feed: Feed, count: int = PROBES) -> Seen:
    """A reader's stream: the seconds from before a reading is written until it is shown.

    Each comes once and in order, or this fails.
    """
    latencies: list[float] = []
    async with open_stream(target.url, feed.name) as stream:
        assert stream.status == 200
        await stream.until_cursor()
        first: int | None = None
        for number in range(count):
            began = time.monotonic()
            await asyncio.to_thread(feed.send)
            ((_, shown),) = numbers(await stream.take(1))
            latencies.append(time.monotonic() - began)
            first = shown if first is None else first
            assert shown == first + number
    return Seen(tuple(latencies))


def is_served(target: Server, path: str) -> bool:
    """Is another client answered, in a connection of its own?"""
    transport = httpx.HTTPTransport(local_address=VICTIM)
    try:
        with (
            httpx.Client(transport=transport, timeout=PATIENCE_S) as http,
            http.stream("GET", f"{target.url}{path}") as answer,
        ):
            return answer.status_code == 200
    except httpx.HTTPError:
        return False


@pytest.fixture
def feed(here: World) -> Iterator[Feed]:
    made = Feed(here.kafka)
    yield made
    made.close()


@contextmanager
def serving_readers(here: World, folder: Path, **more: object) -> Iterator[Server]:
    """An access server with few places."""
    settings = {"hub": SMALL, "clients_max": 400, **more}
    with server(folder, here.kafka, key_file(folder), **settings) as made:  # type: ignore[arg-type]
        yield made


@pytest.mark.parametrize(
    "kind", [pytest.param("filters", marks=pytest.mark.long), "heads", "bodies", "deaf"]
)
async def test_another_reader_is_served_as_before(
    here: World, feed: Feed, tmp_path: Path, kind: str
) -> None:
    acts = {
        "filters": filters(feed),
        "heads": heads(DOORS),
        "bodies": bodies(DOORS),
        "deaf": deaf(feed),
    }
    if kind == "deaf":
        await asyncio.to_thread(feed.send, n=400, frames=50)  # more than sockets hold
    with serving_readers(here, tmp_path) as target:
        before = await series(target, feed)
        with attack(target.port, acts[kind]) as made:
            beside = await series(target, feed)
            for path in (filtered(feed, 7), f"/v1/latest/{feed.name}", "/readyz", "/v1/streams"):
                assert await asyncio.to_thread(is_served, target, path), path
            grown = target.rss_mib()
        assert grown < 400, "memory"
        note("another reader", before, beside, Count())  # else `series` had failed
        assert slower(before, beside, times_of_this_machine()) == ""
        if kind == "filters":
            assert made.statuses[200] >= 20, "the attack was there"
            assert made.statuses[503] >= 75, "and got its share"
        elif kind == "deaf":
            assert made.statuses[200] == DEAF, "they hang on what was sent to them"
        else:
            assert len(made.sockets) == DOORS


@pytest.mark.long
async def test_control_without_shares_nobody_else_gets_a_filter(
    here: World, feed: Feed, tmp_path: Path
) -> None:
    module = "tests.access.unshared_server"
    with serving_readers(here, tmp_path, module=module) as target:
        assert await asyncio.to_thread(is_served, target, filtered(feed, 7))
        with attack(target.port, filters(feed)) as made:
            await asyncio.to_thread(
                wait_until, lambda: made.statuses[503] > 5, "the server is full"
            )
            assert not await asyncio.to_thread(is_served, target, filtered(feed, 8))


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(None, id=""),
        pytest.param("tests.access.unshared_server", id="control", marks=pytest.mark.long),
    ],
)
async def test_more_half_requests_than_there_are_places(
    here: World, feed: Feed, tmp_path: Path, module: str | None
) -> None:
    """Control: without shares there is no place for anybody else."""
    with serving_readers(here, tmp_path, clients_max=1, module=module) as target:
        for act in (heads(FULL), bodies(FULL)):
            await asyncio.to_thread(
                wait_until, lambda: is_served(target, "/v1/streams"), "there is room"
            )
            with attack(target.port, act) as made:
                assert len(made.sockets) == FULL
                is_open = await asyncio.to_thread(is_served, target, "/v1/streams")
                assert is_open is (module is None)


@pytest.mark.long
@pytest.mark.parametrize("module", [None, "tests.access.unpaused_server"], ids=["", "control"])
async def test_what_waits_for_readers_that_read_nothing(
    here: World, feed: Feed, tmp_path: Path, module: str | None
) -> None:
    """Control: a server that writes to them all the same keeps all of it for each."""
    await asyncio.to_thread(feed.send, n=400, frames=50)
    with serving_readers(here, tmp_path, module=module) as target:
        assert await asyncio.to_thread(is_served, target, f"/v1/latest/{feed.name}")
        before = target.rss_mib()
        with attack(target.port, deaf(feed)) as made:
            assert made.statuses[200] == DEAF
            if module is not None:
                await asyncio.to_thread(
                    wait_until, lambda: target.rss_mib() - before > 2 * WAITING_MIB, "it keeps all"
                )
            else:
                await series(target, feed)
                assert target.rss_mib() - before < WAITING_MIB


@pytest.mark.parametrize("share", [pytest.param(0.25, id=""), CONTROL])
async def test_snapshots_that_are_never_read_take_one_client_s_share(
    here: World, feed: Feed, tmp_path: Path, share: float
) -> None:
    """Control: where one client may have all, another is refused its own."""
    await asyncio.to_thread(large_rows, feed)
    latest = f"/v1/latest/{feed.name}"
    with serving_readers(here, tmp_path, address_share=share, answer_bytes_max=8 << 20) as target:
        assert await asyncio.to_thread(whole_rows, target, latest) == ROWS
        pages = f"/v1/streams/{feed.name}/events?from=earliest&limit={ROWS}&"
        for path in (f"{latest}?", pages):

            def act(made: Attack, number: int, path: str = path) -> None:
                for n in range(40 if number == 0 else 1):
                    made.ask(f"{path}where={quote(f'n > -{1 + 40 * number + n}')}")

            with attack(target.port, act) as made:
                assert made.statuses[200] >= 1, "the attack was there"
                assert made.statuses[503] >= 20, "and got what it may have"
                own = f"{path}where={quote('n >= 0')}"
                found = await asyncio.to_thread(whole_rows, target, own)
                assert found == (ROWS if share < 1 else 0)
            await asyncio.to_thread(
                wait_until, lambda: metric(target, "edgewake_access_answer_bytes ") == 0, "all left"
            )


async def test_who_takes_nothing_of_a_snapshot_is_cut_off(
    here: World, feed: Feed, tmp_path: Path
) -> None:
    """Its share is given back, and who reads on meanwhile has all of his."""
    await asyncio.to_thread(large_rows, feed)
    with serving_readers(here, tmp_path, stall_s=1, answer_bytes_max=8 << 20) as target:
        with ExitStack() as stack:
            slow = Attack(target.port, stack)
            slow.ask(f"/v1/latest/{feed.name}")
            assert slow.statuses[200] == 1
            await asyncio.to_thread(
                wait_until, lambda: metric(target, "edgewake_access_cut_answers_total") == 1, "cut"
            )
            await asyncio.to_thread(
                wait_until,
                lambda: metric(target, "edgewake_access_answer_bytes ") == 0,
                "its share is given back",
            )
            (one,) = slow.sockets
            assert rest_of(one) < ROWS * 4000, "the connection has ended before its answer"
        assert await asyncio.to_thread(whole_rows, target, f"/v1/latest/{feed.name}") == ROWS


ROWS = 400
"""Devices, each with a row of 4 KB: more than the sockets of a client that does not read hold."""


def rest_of(one: socket.socket) -> int:
    """Bytes until the end of a connection."""
    size = 0
    with suppress(ConnectionResetError):
        while piece := one.recv(65536):
            size += len(piece)
    return size


def large_rows(feed: Feed) -> None:
    text = "x" * 4000
    feed.send_of({f"dev-{number}": {"n": float(number), "text": text} for number in range(ROWS)})


def whole_rows(target: Server, path: str) -> int:
    """How many rows another client is given; 0: it is refused."""
    transport = httpx.HTTPTransport(local_address=VICTIM)
    with httpx.Client(transport=transport, timeout=PATIENCE_S) as http:
        answer = http.get(f"{target.url}{path}")
    assert answer.status_code in (200, 503), answer.text
    if answer.status_code == 503:
        assert answer.headers["retry-after"]
        assert "bytes of answers that are being sent" in answer.json()["detail"]
        return 0
    body = answer.json()
    return len(body["rows"] if "rows" in body else body["events"])


def filtered(feed: Feed, number: int) -> str:
    return f"/v1/streams/{feed.name}/events?where={quote(f'n > {number}')}"


@pytest.mark.parametrize("share", [pytest.param(0.25, id=""), CONTROL])
async def test_leases(here: World, tmp_path: Path, share: float) -> None:
    """One client asks for one after the other, under ever new filters.

    Control: where one client may have all, another gets none.
    """
    written: Readings = readings(here.kafka, f"leases_{int(share * 100)}")
    bounds = {"leases_max": 40, "scanned_filters_max": 40, "address_share": share}
    bootstrap = here.kafka.bootstrap
    with (
        serving("access", bootstrap, tmp_path) as access,
        serving("push", bootstrap, tmp_path, allow_hosts=["127.0.0.1"], **bounds) as push,
    ):
        client = Reader(access.url, written.stream)
        await client.stand()

        def lease(address: str, where: str) -> int:
            body = {
                "subscription": {"streams": [written.stream], "where": where},
                "cursor": client.cursor,
                "endpoint": {"url": "http://127.0.0.1:9/hook"},
            }
            transport = httpx.HTTPTransport(local_address=address)
            headers = {"Idempotency-Key": f"{written.stream}-{address}-{where}"}
            with httpx.Client(transport=transport, timeout=PATIENCE_S) as http:
                while True:
                    answer = http.post(f"{push.url}/v1/leases", json=body, headers=headers)
                    if answer.status_code != 503:  # it has just started
                        return answer.status_code
                    time.sleep(0.2)

        assert await asyncio.to_thread(lease, VICTIM, "device = 'before'") == 201
        granted: Counter[int] = Counter()

        def act(_: Attack, number: int) -> None:
            for n in range(60 if number == 0 else 1):
                granted[lease(ATTACKER, f"device = 'd{number}_{n}'")] += 1

        with attack(int(push.url.rpartition(":")[2]), act):
            seen = [await asyncio.to_thread(lease, VICTIM, f"device = 'v{n}'") for n in range(5)]
        assert granted[429] >= 20, granted
        assert seen == ([201] * 5 if share < 1 else [429] * 5)
