"""A program that asks for its wake-ups: proxies as it meets them, and itself when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from edgewake.edge.client import (
    Credentials,
    FollowError,
    Lost,
    Sleeper,
    Subscription,
    TokenFile,
    WakePolicy,
)
from edgewake.edge.client import lease as leases
from edgewake.edge.client.follow import RETRY_AFTER_MAX_S
from edgewake.edge.client.lease import Kept
from edgewake.edge.client.sleeper import RENEWALS, WAIT_S
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.errors import ConfigError
from tests.services import PATIENCE_S, free_ports

WANTED = Subscription(streams=("s",))


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: Any


def answered(status: int, body: object = None, **headers: str) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    head = [f"HTTP/1.1 {status} x", f"Content-Length: {len(data)}", "Connection: close"]
    head += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*head, "", ""]).encode() + data


def wake(number: int, lease: str = "a1", **more: object) -> bytes:
    body = {"lease": lease, "count": 3, "capped": False, "gap": False, "again": 0, "events": []}
    return answered(200, body | more, webhook_id=f"msg_{lease}_{number}", webhook_signature="v1,x")


def problem(status: int, detail: str, **headers: str) -> bytes:
    return answered(status, {"detail": detail}, **headers)


@dataclass
class Proxy:
    """A push proxy with one lease at a time, or whatever a test answers in its place."""

    clock: FakeClock = field(default_factory=FakeClock)
    asked: list[Asked] = field(default_factory=list)
    answers: list[bytes | None] = field(default_factory=list)
    """Before its own, None: the answer is lost."""
    wakes: list[bytes] = field(default_factory=list)
    lease: dict[str, Any] | None = None
    keys: dict[str, dict[str, Any]] = field(default_factory=dict)
    ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    lasts_s: float = WAIT_S
    """Of a question without an answer, by the clock."""
    url: str = ""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def handler(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
            pairs = [line.partition(": ") for line in head[1:]]
            headers = {name.lower(): value for name, _, value in pairs}
            data = await reader.readexactly(int(headers.get("content-length", 0)))
            method, path, _ = head[0].split(" ")
            asked = Asked(method, path, headers, json.loads(data) if data else None)
            self.asked.append(asked)
            own = self.own(asked)
            answer = self.answers.pop(0) if self.answers else own
            self.arrived.set()
            if answer is not None:
                writer.write(answer)
                await writer.drain()
        writer.close()

    def own(self, asked: Asked) -> bytes:
        """What a proxy answers, and keeps, also where the answer is lost."""
        if asked.method == "POST":
            key = asked.headers["idempotency-key"]
            if key not in self.keys:
                name = f"a{next(self.ids)}"
                self.keys[key] = {"id": name, "token": f"t-{name}", "cursor": asked.body["cursor"]}
            self.lease = self.keys[key]
            return answered(201, self.lease)
        if self.lease is None or self.lease["id"] not in asked.path:
            return problem(404, "no such lease")
        if asked.headers["authorization"] != f"Bearer {self.lease['token']}":
            return problem(404, "not with this token")
        if asked.method == "DELETE":
            self.lease = None
            return answered(204)
        if asked.method == "PATCH":
            self.lease["cursor"] = asked.body.get("cursor", self.lease["cursor"])
            return answered(200, self.lease)
        if self.wakes:
            return self.wakes.pop(0)
        self.clock.advance(self.lasts_s)
        return answered(204)

    def of(self, method: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.method == method]


@contextlib.asynccontextmanager
async def proxy() -> AsyncIterator[Proxy]:
    found = Proxy()
    server = await asyncio.start_server(found.handler, "127.0.0.1", 0)
    async with server:
        found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield found


def sleeper(at: Proxy, *more: str, **options: Any) -> Sleeper:
    keys = itertools.count()
    defaults = {
        "clock": at.clock,
        "rng": random.Random(1),
        "new_key": lambda: f"key-{next(keys)}-{options.get('place', '')}",
    }
    return Sleeper([*more, at.url], options.pop("wanted", WANTED), **(defaults | options))


@contextlib.asynccontextmanager
async def patience() -> AsyncIterator[None]:
    async with asyncio.timeout(PATIENCE_S):
        yield


async def test_it_leaves_a_lease_is_woken_and_sleeps_on_where_it_has_read_to() -> None:
    async with proxy() as at, patience():
        program = sleeper(at, wake=WakePolicy(min_events=3), credentials=Credentials(token="mine"))
        at.wakes = [wake(1, count=3, gap=True, events=[{"n": 1}])]
        woken = await program.sleep("c0")
        assert (woken.number, woken.count, woken.gap, woken.events) == (1, 3, True, [{"n": 1}])
        assert woken.headers == {"webhook-id": "msg_a1_1", "webhook-signature": "v1,x"}
        assert json.loads(woken.body)["count"] == 3
        at.wakes = [wake(2)]
        assert (await program.sleep("c3")).number == 2
        assert at.lease is not None
        assert at.lease["cursor"] == "c3"
        (posted,), (moved,) = at.of("POST"), at.of("PATCH")
        assert posted.headers["authorization"] == "Bearer mine"
        assert posted.body["endpoint"]["type"] == "relay"
        assert (posted.body["cursor"], posted.body["wake"]["min_events"]) == ("c0", 3)
        assert moved.headers["authorization"] == "Bearer t-a1", "not the reader's own"
        paths = [asked.path for asked in at.of("GET")]
        assert paths == [f"/v1/leases/a1/wake?after={n}&wait={WAIT_S}" for n in (0, 1)]
        await program.end()
        assert at.lease is None


async def test_a_program_that_dies_between_question_and_answer_leaves_one_lease(
    tmp_path: Path,
) -> None:
    """It dies after each of its requests in turn; the control keeps nothing."""

    async def leases_left(place: Path | None) -> int:
        async with proxy() as at, patience():
            for cursor in ("c0", "c1", "c2", "c3"):
                at.arrived.clear()
                at.answers = [None] * 99
                run = asyncio.create_task(
                    sleeper(at, place=place, new_key=lambda c=cursor: f"key-{c}").sleep(cursor)
                )
                await at.arrived.wait()
                run.cancel()
                await asyncio.gather(run, return_exceptions=True)
            at.answers, at.wakes = [], [wake(1, f"a{len(at.keys)}")]
            await sleeper(at, place=place, new_key=lambda: "key-c3").sleep("c4")
            assert at.lease is not None
            assert at.lease["cursor"] == "c4"
            return len(at.keys)

    assert await leases_left(tmp_path / "lease.json") == 1
    assert await leases_left(None) == 4
    assert (tmp_path / "lease.json").stat().st_mode & 0o077 == 0, "it has a token"


async def test_the_next_run_goes_on_with_the_lease_of_the_one_before(tmp_path: Path) -> None:
    async with proxy() as at, patience():
        at.wakes = [wake(7)]
        place = tmp_path / "lease.json"
        await sleeper(at, place=place).sleep("c0")
        at.wakes = [wake(8)]
        assert (await sleeper(at, place=place).sleep("c7")).number == 8
        assert len(at.of("POST")) == 1
        assert at.of("GET")[-1].path.endswith(f"after=7&wait={WAIT_S}")
        other = sleeper(at, place=place, wanted=Subscription(streams=("other",)))
        at.wakes = [wake(1, "a2")]
        await other.sleep("c9")
        assert [asked.path for asked in at.of("DELETE")] == ["/v1/leases/a1"], "of another wish"
        assert at.of("POST")[-1].body["subscription"]["streams"] == ["other"]


async def test_who_is_cut_off_again_and_again_does_not_count_from_the_beginning_each_time() -> None:
    """With `max_wait_s` an hour, a PATCH a minute would let it sleep for ever."""
    async with proxy() as at, patience():
        program = sleeper(at)
        for _ in range(3):
            at.arrived.clear()
            run = asyncio.create_task(program.sleep("c0"))
            await at.arrived.wait()
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
        at.wakes = [wake(1)]
        await program.sleep("c0")
        assert at.of("PATCH") == []


async def test_a_lease_that_is_gone_wakes_and_the_next_sleep_has_another() -> None:
    """It was away for more than a week, or its right or its stream is gone: reading tells."""
    async with proxy() as at, patience():
        program = sleeper(at)
        at.wakes = [wake(1)]
        await program.sleep("c0")
        at.lease = None
        at.wakes = [wake(1, "a2")]
        assert (await program.sleep("c1")).number == 1
        assert [posted.body["cursor"] for posted in at.of("POST")] == ["c0", "c1"]
        at.wakes = [problem(410, "its right is revoked")]
        woken = await program.sleep("c2")
        assert woken.ended == "its right is revoked"
        assert [asked.path for asked in at.of("DELETE")] == ["/v1/leases/a2"]
        at.answers = [problem(403, "expected the action wake")]
        with pytest.raises(FollowError, match="expected the action wake"):
            await program.sleep("c2")


async def test_a_lease_that_wakes_nobody_for_weeks_is_renewed() -> None:
    async with proxy() as at, patience():
        ttl_s = 100 * WAIT_S
        program = asyncio.create_task(sleeper(at, ttl_s=ttl_s).sleep("c0"))
        while len(at.of("PATCH")) < 3:
            await asyncio.sleep(0)
            assert not program.done()
        program.cancel()
        await asyncio.gather(program, return_exceptions=True)
        assert {str(asked.body) for asked in at.of("PATCH")} == {"{}"}, "nothing is counted anew"
        asked_before = at.asked.index(at.of("PATCH")[0])
        assert asked_before * WAIT_S >= ttl_s / RENEWALS


async def test_servers_that_are_away_are_taken_in_turn_and_not_hurried() -> None:
    async with proxy() as at, patience():
        (dead,) = free_ports(1)
        notices: list[Lost] = []
        at.answers = [problem(503, "taking over", retry_after="40")]
        at.answers += [problem(429, "too many", retry_after="999999")]
        at.wakes = [wake(1)]
        program = sleeper(at, f"http://127.0.0.1:{dead}", on_notice=notices.append)
        assert (await program.sleep("c0")).number == 1
        told = [notice for notice in notices if notice.server == at.url]
        assert [notice.why for notice in told] == ["taking over", "too many"]
        assert [notice.wait_s for notice in told] == [40, RETRY_AFTER_MAX_S]
        assert [notice.server for notice in notices if notice.server != at.url]


async def test_who_is_sent_away_at_once_does_not_ask_as_fast_as_it_can() -> None:
    """Three that share a lease end each other's questions."""
    async with proxy() as at, patience():
        at.lasts_s = 0.0
        program = asyncio.create_task(sleeper(at).sleep("c0"))
        while len(at.of("GET")) < 40:
            await asyncio.sleep(0)
            assert not program.done()
        program.cancel()
        await asyncio.gather(program, return_exceptions=True)
        assert at.clock.monotonic_s() > 200, "a back-off that grows"


@pytest.mark.parametrize(
    "nonsense",
    [
        wake(0),
        answered(200, {"count": 1}, webhook_id="msg_a1_2"),
        answered(200, {"count": 1, "again": 0, "events": []}, webhook_id="x"),
        answered(200, ["no object"], webhook_id="msg_a1_2"),
        answered(200, {"count": 1, "again": 0, "events": [], "x": "y" * 70_000}, webhook_id="x"),
        answered(200, {"count": 1}, webhook_id="msg_a1_2", Content_Encoding="br"),
        b"HTTP/1.1 200 x\r\nContent-Length: 4\r\nConnection: close\r\n\r\n\xff\xfe..",
        b"not HTTP\r\n\r\n",
        b"",
    ],
)
async def test_what_is_no_wake_up_wakes_nobody(nonsense: bytes) -> None:
    async with proxy() as at, patience():
        notices: list[Lost] = []
        at.wakes = [nonsense, wake(1)]
        assert (await sleeper(at, on_notice=notices.append).sleep("c0")).number == 1
        assert len(notices) == 1, "and it says so"


async def test_what_cannot_be_is_said_at_once(tmp_path: Path) -> None:
    async with proxy() as at, patience():
        for status in (301, 401, 403, 404, 422):
            at.answers = [problem(status, f"because of {status}")]
            with pytest.raises(FollowError, match=f"because of {status}"):
                await sleeper(at).sleep("c0")
        place = tmp_path / "lease.json"
        place.write_text("a text")
        with pytest.raises(ConfigError, match=r"lease\.json: .* remove it"):
            sleeper(at, place=place)
        with pytest.raises(ConfigError, match="nowhere"):
            sleeper(at, place=tmp_path / "nowhere" / "lease.json")
        with pytest.raises(ValueError, match="at least one server"):
            Sleeper([], WANTED)


async def test_a_cursor_of_a_run_before_that_is_too_old_by_now_does_not_stop_this_run(
    tmp_path: Path,
) -> None:
    place = tmp_path / "lease.json"
    request = leases.request_of(WANTED, "old", WakePolicy())
    place.write_bytes(leases.encode(Kept("key-of-old", request)))
    async with proxy() as at, patience():
        at.answers, at.wakes = [problem(422, "a cursor of another key")], [wake(1, "a2")]
        assert (await sleeper(at, place=place).sleep("new")).number == 1
        assert [posted.body["cursor"] for posted in at.of("POST")] == ["old", "new"]
        at.answers = [problem(422, "a cursor of another key")]
        with pytest.raises(FollowError, match="another key"):
            await sleeper(at).sleep("new")


def bearers(at: Proxy) -> list[str]:
    return [posted.headers["authorization"].removeprefix("Bearer ") for posted in at.of("POST")]


async def test_a_token_that_is_renewed_while_proxies_are_away_is_the_one_that_is_shown(
    tmp_path: Path,
) -> None:
    """It was read once: after an outage the lease was asked for with one that had expired."""
    file = tmp_path / "token"
    file.write_text("old")
    async with proxy() as at, patience():
        at.answers, at.wakes = [problem(503, "away")], [wake(1)]
        credentials = Credentials(token=TokenFile(file))
        program = sleeper(at, credentials=credentials, on_notice=lambda _: file.write_text("new"))
        assert (await program.sleep("c0")).number == 1
        assert bearers(at) == ["old", "new"]


async def test_a_token_that_is_renewed_late_does_not_end_who_was_let_in(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    async with proxy() as at, patience():
        lost: list[Lost] = []

        def renew(notice: Lost) -> None:
            lost.append(notice)
            if len(lost) == 2:
                file.write_text("new")

        program = sleeper(at, credentials=Credentials(token=TokenFile(file)), on_notice=renew)
        at.wakes = [wake(1), wake(1, "a2")]
        await program.sleep("c0")
        at.lease = None
        at.answers = [problem(404, "gone"), *[problem(401, "it is expired")] * 2]
        assert (await program.sleep("c1")).number == 1
        assert bearers(at) == ["old", "old", "old", "new"]


async def test_a_token_that_is_refused_does_not_have_the_request_forgotten(tmp_path: Path) -> None:
    """It may be granted already: asked for with another key, two leases were left."""
    place = tmp_path / "lease.json"
    async with proxy() as at, patience():
        at.answers = [None, problem(401, "it is expired")]
        with pytest.raises(FollowError, match="expired"):
            await sleeper(at, place=place, new_key=lambda: "first").sleep("c0")
        at.answers = [problem(401, "it is expired")]
        with pytest.raises(FollowError, match="expired"):
            await sleeper(at, place=place, new_key=lambda: "second").sleep("c1")
        at.wakes = [wake(1)]
        assert (await sleeper(at, place=place, new_key=lambda: "third").sleep("c2")).number == 1
        assert list(at.keys) == ["first"]
