"""Programs that send by HTTP: acknowledged when durable, taken once, bounded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from edgewake.edge.intake.intake import Intake, LogSink
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.config import LaneConfig, LogConfig
from edgewake.edge.log.event_log import EventLog, LogBusyError
from edgewake.edge.log.keeping.lanes import Lane as StreamLane
from edgewake.edge.log.keeping.quota import AtQuota
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.sources.config import SourceContext
from edgewake.edge.sources.web import http_intake
from edgewake.edge.sources.web.http_intake import HttpIntake, HttpIntakeConfig
from edgewake.edge.sources.web.http_request import Refusal, Wanted, wanted
from edgewake.edge.sources.web.recent_keys import KEYS_MAX, RecentKeys
from edgewake.protocol.clock import SystemClock
from tests.edge.helpers import Sent, opened, reading
from tests.edge.sources.cage import Caged, caged
from tests.services import PATIENCE_S, free_ports, port_is_open, wait_until

JSON = {"Content-Type": "application/json"}


def config(**more: object) -> HttpIntakeConfig:
    (port,) = free_ports(1)
    return HttpIntakeConfig(type="http_intake", stream="s", **({"port": port} | more))  # type: ignore[arg-type]


async def post(one: Caged, to: HttpIntakeConfig, body: bytes, **headers: str) -> httpx.Response:
    await one.until(lambda: port_is_open(to.port), "the port")
    async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
        named = JSON | {name.replace("_", "-"): value for name, value in headers.items()}
        return await client.post(f"http://127.0.0.1:{to.port}/", content=body, headers=named)


async def test_what_is_answered_200_is_durable_and_what_is_wrong_is_counted(tmp_path: Path) -> None:
    to = config()
    async with caged(tmp_path, to) as one:
        got = await post(one, to, b'[{"n": 1}, {"n": "\\u0000"}, {"n": 2}]')
        assert (got.status_code, got.json()["taken"], got.json()["refused"]) == (200, 2, 1)
        assert one.events.stream("s").accepted_through == 2
        got = await post(one, to, b'{"n": 3}\n{"n": 4}\n', Content_Type="application/x-ndjson")
        assert got.json() == {"taken": 2, "refused": 0}
        got = await post(one, to, b'{"n": 5}', Prefer="respond-async")
        assert got.status_code == 202
        await one.until(lambda: one.column("n") == [1, 2, 3, 4, 5], "all")


async def test_no_200_before_the_readings_are_durable_and_202_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_intake, "TAKE_S", 0.3)
    armed, go, stood = threading.Event(), threading.Event(), threading.Event()

    def failpoint(_name: str) -> None:
        if armed.is_set():
            stood.set()
            go.wait(PATIENCE_S)

    to = config()
    async with caged(tmp_path, to, failpoint=failpoint) as one:
        armed.set()
        try:
            got = await post(one, to, b'{"n": 1}', Idempotency_Key="k1")
            assert (got.status_code, got.json()["durable"], stood.is_set()) == (202, False, True)
            again = await post(one, to, b'{"n": 1}', Idempotency_Key="k1")
            assert (again.status_code, again.json()) == (202, {"repeated": True, "durable": False})
            assert (await post(one, to, b'{"n": 2}', Prefer="respond-async")).status_code == 202
        finally:
            go.set()
        assert (await post(one, to, b'{"n": 1}', Idempotency_Key="k1")).json() == {"repeated": True}
        await one.until(lambda: one.column("n") == [1, 2], "1, 2")


async def test_a_request_that_is_sent_again_is_taken_once_also_after_a_restart(
    tmp_path: Path,
) -> None:
    to = config()
    async with caged(tmp_path, to, answering=False) as one:
        first = await asyncio.gather(
            *(post(one, to, b'{"n": 1}', Idempotency_Key="k1") for _ in range(5))
        )
        assert sorted(got.json().get("taken", 0) for got in first) == [0, 0, 0, 0, 1]
    async with caged(tmp_path, to, answering=False) as one:
        assert (await post(one, to, b'{"n": 1}', Idempotency_Key="k1")).json() == {"repeated": True}
        assert (await post(one, to, b'{"n": 2}', Idempotency_Key="k2")).json()["taken"] == 1
        await one.until(lambda: one.column("n") == [1, 2], "1, 2")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"405"),
        (b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", b"404"),
        (
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: "
            b"2\r\n\r\n{}",
            b"415",
        ),
        (
            b"POST / HTTP/1.1\r\nHost: x\r\nOrigin: http://evil\r\nContent-Type: "
            b"application/json\r\nContent-Length: 2\r\n\r\n{}",
            b"403",
        ),
        (
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
            b"1\r\n\r\n{",
            b"400",
        ),
        (
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
            b"10000000000\r\n\r\n" + b"x" * 4000,
            b"413",
        ),
        (
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
            b"3\r\n\r\n[5]",
            b"422",
        ),
        (b"POST / HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 40_000, b""),
        (b"nonsense\r\n\r\n", b""),
    ],
)
async def test_a_request_that_is_none_is_answered_or_dropped_and_the_next_one_taken(
    tmp_path: Path, request_: bytes, status: bytes
) -> None:
    to = config(body_bytes_max=2048)
    async with caged(tmp_path, to) as one:
        await one.until(lambda: port_is_open(to.port), "the port")
        reader, writer = await asyncio.open_connection("127.0.0.1", to.port)
        writer.write(request_)
        async with asyncio.timeout(PATIENCE_S):
            try:
                first = await reader.readline()
            except ConnectionResetError:
                first = b""
        assert first.split()[1:2] == ([status] if status else [])
        writer.close()
        assert (await post(one, to, b'{"n": 1}')).status_code == 200


async def test_slow_senders_are_cut_and_too_many_are_turned_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_intake, "REQUEST_S", 0.5)
    to = config(connections_max=2)
    async with caged(tmp_path, to) as one:
        await one.until(lambda: port_is_open(to.port), "the port")
        await asyncio.sleep(0)
        slow = [await asyncio.open_connection("127.0.0.1", to.port) for _ in range(3)]
        for _, writer in slow:
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\n")
        async with asyncio.timeout(PATIENCE_S):
            for reader, writer in slow:
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
                writer.close()
        assert (await post(one, to, b'{"n": 1}')).status_code == 200


async def test_who_opens_all_connections_and_says_nothing_shuts_nobody_out(tmp_path: Path) -> None:
    to = config(connections_max=4)
    async with caged(tmp_path, to) as one:
        await one.until(lambda: port_is_open(to.port), "the port")
        silent = [
            await asyncio.open_connection("127.0.0.1", to.port, local_addr=("127.0.0.2", 0))
            for _ in range(8)
        ]
        assert (await post(one, to, b'{"n": 1}')).status_code == 200
        for _, writer in silent:
            writer.transport.abort()


async def test_only_who_shows_the_token_is_heard(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    to = config(token_file=tmp_path / "token")
    async with caged(tmp_path / "log", to) as one:
        assert (await post(one, to, b'{"n": 1}')).status_code == 401
        assert (await post(one, to, b'{"n": 1}', Authorization="Bearer wrong")).status_code == 401
        assert (await post(one, to, b'{"n": 1}', Authorization="Bearer secret")).status_code == 200
        assert one.intake.taken == 1


def test_who_listens_beyond_the_machine_needs_a_token() -> None:
    with pytest.raises(ValueError, match="set token_file"):
        config(host="0.0.0.0")
    assert config(host="::1").host == "::1"


def test_what_a_head_asks_for() -> None:
    good = {
        "content-type": "application/json; charset=utf-8",
        "idempotency-key": "k",
        "prefer": "respond-async, wait=10",
    }
    assert wanted("POST", "/?x=1", good, None) == Wanted(one_way=True, key="k")
    assert isinstance(wanted("POST", "/", good | {"idempotency-key": "x" * 201}, None), Refusal)
    assert isinstance(wanted("POST", "/", good | {"content-encoding": "gzip"}, None), Refusal)


def test_the_last_keys_are_remembered_as_text() -> None:
    keys = RecentKeys()
    for n in range(KEYS_MAX + 5):
        keys.add(f"k{n}", b"body")
    again = RecentKeys.decode(keys.encode())
    assert ("k4" in again, "k5" in again, f"k{KEYS_MAX + 4}" in again) == (False, True, True)
    assert len(keys.encode()) < 26 * KEYS_MAX
    assert again.came_with("k5", b"body")
    assert not again.came_with("k5", b"other")


async def test_a_key_that_comes_with_another_body_is_no_repetition(tmp_path: Path) -> None:
    """Answered 200, the second body would be lost unsaid."""
    to = config()
    async with caged(tmp_path, to) as one:
        assert (await post(one, to, b'{"n": 1}', Idempotency_Key="k1")).status_code == 200
        got = await post(one, to, b'{"n": 2}', Idempotency_Key="k1")
        assert (got.status_code, "another body" in got.json()["error"]) == (422, True)


class Lane(NamedTuple):
    """A log whose lane is full: nothing is sent."""

    events: EventLog
    sent: Sent
    intake: Intake
    source: HttpIntake


@contextmanager
def full_lane(path: Path, at_quota: AtQuota) -> Iterator[Lane]:
    """The lane bulk of 64 KiB, which is full; the broker is away."""
    log_config = LogConfig(
        linger_bulk_ms=0, reserve_bytes=0, bulk=LaneConfig(quota_bytes=64 << 10, at_quota=at_quota)
    )
    sent = Sent()
    with opened(path, sent=sent, config=log_config, lanes={"s": StreamLane.BULK}) as events:
        stream = events.stream("s")
        while not (events._writer.store.stopped_lanes or events._writer.store.dropping_lanes):
            assert stream.wait_accepted(
                stream.append_all([reading(-1, text="x" * 1000)] * 20), timeout_s=PATIENCE_S
            )
        intake = Intake("i", LogSink(stream), Policy.BLOCK, SystemClock())
        yield Lane(
            events,
            sent,
            intake,
            HttpIntake(config(), SourceContext("d1", SystemClock(), events.position)),
        )


@pytest.mark.parametrize("at_quota", [AtQuota.STOP_SOURCE, AtQuota.DROP_NEWEST])
@pytest.mark.parametrize("key", [None, "k"])
async def test_what_is_told_to_come_again_is_neither_lost_nor_there_twice(
    tmp_path: Path, at_quota: AtQuota, key: str | None
) -> None:
    """The lane is full and the broker away: every request hears 503 within two seconds, and is
    stored once when it comes again.
    """
    with full_lane(tmp_path, at_quota) as lane:
        began_s = asyncio.get_running_loop().time()
        for _ in range(2):
            said = await asyncio.gather(
                *(
                    lane.source.take(lane.intake, Wanted(False, key and f"{key}{n}"), body(n))
                    for n in range(5)
                )
            )
            assert [status for status, _ in said] == [503] * 5
        assert asyncio.get_running_loop().time() - began_s < 2 * 2.0
        assert (lane.intake.turned_away, lane.intake.dropped, lane.intake.taken) == (
            2 * 5 * 100,
            0,
            0,
        )
        assert lane.events.status().lost == {}, "the sender has them still"
        lane.events.start_sending()
        for n in range(5):
            while (
                await lane.source.take(lane.intake, Wanted(False, key and f"{key}{n}"), body(n))
            )[0] != 200:
                lane.sent.acknowledge(lane.events)
        async with asyncio.timeout(PATIENCE_S):
            while (await lane.events.ask_status()).backlog_readings:
                lane.sent.acknowledge(lane.events)
        assert lane.events.status().lost == {}
    assert [n for n in lane.sent.ns() if n != -1] == list(range(500))
    assert not [out for out in lane.sent if out.gap]


async def test_what_was_taken_stays_although_its_lane_was_full_meanwhile(tmp_path: Path) -> None:
    """Two requests in one commit: the first one fills the lane, and both heard 200."""
    armed, go = threading.Event(), threading.Event()

    def failpoint(name: str) -> None:
        if armed.is_set() and name == "received":
            go.wait(PATIENCE_S)

    log_config = LogConfig(
        linger_bulk_ms=0,
        reserve_bytes=0,
        bulk=LaneConfig(quota_bytes=64 << 10, at_quota=AtQuota.DROP_NEWEST),
    )
    lanes = {"a": StreamLane.BULK, "b": StreamLane.BULK}
    with opened(tmp_path, config=log_config, lanes=lanes, failpoint=failpoint) as events:
        armed.set()
        events.stream("b").append(reading(0))
        big = [reading(n, text=f"{n}" + "x" * 5000) for n in range(200)]
        assert Intake("a", LogSink(events.stream("a")), Policy.BLOCK, SystemClock()).offer(big)
        late = Intake("b", LogSink(events.stream("b")), Policy.BLOCK, SystemClock())
        assert late.offer([reading(1)])
        armed.clear()
        go.set()
        await asyncio.to_thread(
            lambda: wait_until(lambda: events.stream("b").waiting == 0, "all are durable")
        )
        assert events._writer.store.dropping_lanes, "the fault did not fire"
        assert events.status().lost == {}
        assert not late.offer([reading(2)])


def body(first: int) -> bytes:
    """A hundred readings."""
    return b"[" + b",".join(b'{"n": %d}' % n for n in range(100 * first, 100 * first + 100)) + b"]"


async def test_each_refused_item_is_named_with_its_reason_and_the_good_ones_are_taken(
    tmp_path: Path,
) -> None:
    to = config()
    async with caged(tmp_path, to) as one:
        got = await post(one, to, b'[{"n": 1}, 5, {"n": "\\u0000"}, {"n": 2}]')
        assert got.status_code == 200
        assert (got.json()["taken"], got.json()["refused"]) == (2, 2)
        assert [
            (each["item"], each["status"], each["reason"]) for each in got.json()["refusals"]
        ] == [
            (1, 422, "shape"),
            (2, 422, "encoding"),
        ]
        got = await post(one, to, b"[5]")
        assert (got.status_code, got.json()["refusals"][0]["detail"]) == (
            422,
            "expected a JSON object, found int",
        )


class SmallRoom:
    """A sink that has room for so many readings at once."""

    def __init__(self) -> None:
        self.free = 1
        self.kept_: list[tuple[int, str]] = []
        self.lost: list[tuple[int, str]] = []
        self.more = asyncio.Event()
        self.waiting = 0

    async def room(self, *, promised: bool = False) -> None:
        self.waiting += 1
        await self.more.wait()

    def put(
        self, readings: Sequence[Reading], position: tuple[str, str] | None, lost: Mapping[str, int]
    ) -> None:
        if len(readings) > self.free:
            raise LogBusyError
        self.kept_.append((len(readings), "" if position is None else position[1]))

    def offer(self, readings: Sequence[Reading], position: tuple[str, str] | None) -> None:
        self.put(readings, position, {})

    async def kept(self) -> None:
        pass

    async def durable(self) -> None:
        pass

    def lose(self, count: int, reason: str) -> None:
        self.lost.append((count, reason))

    def lose_these(self, readings: Sequence[Reading], reason: str) -> None:
        self.lose(len(readings), reason)


def taking(policy: Policy) -> tuple[HttpIntake, SmallRoom, Intake]:
    sink, clock = SmallRoom(), SystemClock()
    return (
        HttpIntake(config(), SourceContext("d1", clock, lambda _: None)),
        sink,
        Intake("i", sink, policy, clock),
    )


BIG = b"[" + b",".join([b'{"n": 1}'] * 20) + b"]"


async def test_a_key_is_not_kept_before_the_readings_that_it_came_with() -> None:
    """Else a crash after the small one's commit, and the big one sent again would be taken for a
    repetition: lost.
    """
    source, sink, intake = taking(Policy.BLOCK)
    big = asyncio.create_task(source.take(intake, Wanted(False, "big"), BIG))
    while not sink.waiting:
        await asyncio.sleep(0)
    same = asyncio.create_task(source.take(intake, Wanted(False, "big"), BIG))
    while sink.waiting < 2:
        await asyncio.sleep(0)
    small = await source.take(intake, Wanted(False, "small"), b'{"n": 2}')
    without = await source.take(intake, Wanted(False, None), b'{"n": 3}')
    assert small == without == (200, {"taken": 1, "refused": 0})
    assert all("big" not in RecentKeys.decode(position) for _, position in sink.kept_)
    sink.free = 100
    sink.more.set()
    assert await big == (200, {"taken": 20, "refused": 0})
    assert await same == (200, {"repeated": True})
    known = [RecentKeys.decode(position) for _, position in sink.kept_ if position]
    assert [("big" in each, "small" in each) for each in known] == [(False, True), (True, True)]


async def test_a_request_that_was_given_up_leaves_no_key() -> None:
    source, sink, intake = taking(Policy.BLOCK)
    big = asyncio.create_task(source.take(intake, Wanted(False, "big"), BIG))
    while not sink.waiting:
        await asyncio.sleep(0)
    big.cancel()
    await asyncio.wait({big})
    assert await source.take(intake, Wanted(False, "small"), b'{"n": 2}') == (
        200,
        {"taken": 1, "refused": 0},
    )
    assert "big" not in RecentKeys.decode(sink.kept_[-1][1])


async def test_what_is_dropped_is_not_acknowledged() -> None:
    source, sink, intake = taking(Policy.DROP_NEWEST)
    for key in ("k", None):
        assert (await source.take(intake, Wanted(False, key), BIG))[0] == 503
    assert (sink.lost, intake.turned_away) == ([], 40), "the sender has them still"
    sink.free = 100
    assert await source.take(intake, Wanted(False, "k"), BIG) == (200, {"taken": 20, "refused": 0})


@pytest.mark.parametrize(
    ("prefer", "one_way"),
    [
        ("respond-async", True),
        ("Respond-Async", True),
        ("wait=10, respond-async; x=1", True),
        ("respond-asynchronous", False),
        ("", False),
    ],
)
def test_one_way_is_what_the_standard_says(prefer: str, one_way: bool) -> None:
    headers = {"content-type": "application/json", "prefer": prefer}
    assert wanted("POST", "/", headers, None) == Wanted(one_way, None)
