"""Servers as a follower meets them: who is asked when, with which words, and what is believed of
what they say.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import math
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

import pytest

from edgewake.edge.client.follow import (
    BACKOFF_MAX_S,
    BACKOFF_MIN_S,
    RETRY_AFTER_MAX_S,
    RETRY_MAX_S,
    SILENCE_MAX_S,
    SILENCE_S,
    Connected,
    Follower,
    FollowError,
    Lost,
    Received,
    silence_of,
)
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.cursor import TEXT_MAX
from edgewake.protocol.leases.lease import Subscription
from tests.services import PATIENCE_S, free_ports

STREAM = "Content-Type: text/event-stream"


def answer(status: str, *headers: str, body: bytes = b"") -> bytes:
    return (
        "\r\n".join([f"HTTP/1.1 {status}", *headers, "Connection: close", "", ""]).encode() + body
    )


def stream(body: bytes, *headers: str) -> bytes:
    return answer("200 OK", STREAM, *headers, body=body)


def event(n: int, cursor: str) -> bytes:
    return b'id: %s\ndata: {"n":%d}\n\n' % (cursor.encode(), n)


@dataclass
class World:
    """A server that gives each connection its next answer, and the last one to all that follow."""

    answers: list[bytes]
    clock: FakeClock = field(default_factory=FakeClock)
    heads: list[str] = field(default_factory=list)
    asked_s: list[float] = field(default_factory=list)
    """When, by the follower's clock."""
    url: str = ""

    def last_ids(self) -> list[str | None]:
        found = []
        for head in self.heads:
            lines = [line.partition(": ") for line in head.split("\r\n")]
            found.append(
                next((value for name, _, value in lines if name.lower() == "last-event-id"), None)
            )
        return found

    async def handler(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode("latin-1"))
            self.asked_s.append(self.clock.monotonic_s())
            writer.write(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def world(*answers: bytes, clock: FakeClock | None = None) -> AsyncIterator[World]:
    found = World(list(answers), clock or FakeClock())
    server = await asyncio.start_server(found.handler, "127.0.0.1", 0)
    async with server:
        found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield found


class Followed:
    """A follower at work."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.notices: list[Connected | Lost] = []

    @property
    def lost(self) -> list[Lost]:
        return [notice for notice in self.notices if isinstance(notice, Lost)]


async def followed(
    at: World,
    losses: int,
    *more: str,
    on_event: Callable[[Received], None] = lambda _: None,
    **options: object,
) -> Followed:
    """Follow until so many connections were lost."""
    found = Followed()
    options = {
        "clock": at.clock,
        "rng": random.Random(1),
        "on_notice": found.notices.append,
    } | options
    follower = Follower([at.url, *more], Subscription(streams=("s",)), **options)  # type: ignore[arg-type]

    async def follow() -> None:
        async with contextlib.aclosing(follower.events()) as events:
            async for received in events:
                found.received.append(received)
                on_event(received)

    task = asyncio.create_task(follow())
    try:
        async with asyncio.timeout(PATIENCE_S):
            while len(found.lost) < losses and not task.done():
                await asyncio.sleep(0)
    finally:
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.result()
    return found


# waits


async def test_after_a_connection_that_held_the_wait_is_the_shortest_again() -> None:
    """A server that was away for long, then there for an hour, and is started anew: nobody waits
    for what was before.
    """
    busy = answer("503 Service Unavailable")
    async with world(*[busy] * 7, stream(event(1, "v2.a")), busy) as at:
        found = await followed(at, 9, on_event=lambda _: at.clock.advance(3600))
    waits = [lost.wait_s for lost in found.lost]
    assert waits[6] > 10 * BACKOFF_MIN_S, "the control: seven failures in a row are waited out"
    assert waits[7] <= BACKOFF_MIN_S
    assert waits[8] <= 2 * BACKOFF_MIN_S


async def test_a_server_that_accepts_and_ends_at_once_is_asked_less_and_less_often() -> None:
    async with world(stream(b"")) as at:
        found = await followed(at, 12)
    waits = [lost.wait_s for lost in found.lost]
    assert waits[0] <= BACKOFF_MIN_S
    assert BACKOFF_MAX_S / 2 <= waits[-1] <= BACKOFF_MAX_S


@pytest.mark.parametrize(
    ("said", "wait_s"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("-1", 0.0),
        ("soon", 0.0),
        ("1e9", 0.0),
        ("86400", RETRY_AFTER_MAX_S),
        ("9" * 300, RETRY_AFTER_MAX_S),
    ],
)
async def test_a_server_that_asks_for_time_gets_it_within_bounds(said: str, wait_s: float) -> None:
    async with world(answer("503 Busy", f"Retry-After: {said}")) as at:
        (lost,) = (await followed(at, 1)).lost
    assert lost.wait_s == pytest.approx(
        max(wait_s, lost.wait_s if lost.wait_s <= BACKOFF_MIN_S else 0.0)
    )
    assert lost.wait_s >= wait_s


@pytest.mark.parametrize(
    ("said", "wait_s"), [(b"9000", 9.0), (b"99999999", RETRY_MAX_S), (b"0", 0.0), (b"x", 0.0)]
)
async def test_a_stream_that_asks_for_time_gets_it_within_bounds(
    said: bytes, wait_s: float
) -> None:
    async with world(stream(b"retry: " + said + b"\n\n")) as at:
        (lost,) = (await followed(at, 1)).lost
    assert wait_s <= lost.wait_s <= max(wait_s, BACKOFF_MIN_S)


async def test_a_server_that_asked_for_time_is_left_alone_while_another_one_answers() -> None:
    clock = FakeClock()
    busy = answer("503 Busy", "Retry-After: 100")
    async with (
        world(busy, stream(b""), clock=clock) as one,
        world(stream(b""), clock=clock) as other,
    ):
        await followed(one, 40, other.url)
    assert one.asked_s[0] == 0.0
    assert one.asked_s[1] >= 100
    assert len([at_s for at_s in other.asked_s if at_s < 100]) >= 3


async def test_where_all_asked_for_time_the_first_that_may_be_asked_is_waited_for() -> None:
    clock = FakeClock()
    async with (
        world(answer("503 Busy", "Retry-After: 50"), clock=clock) as one,
        world(answer("503 Busy", "Retry-After: 20"), clock=clock) as other,
    ):
        await followed(one, 4, other.url)
    assert other.asked_s[1] == pytest.approx(20, abs=1)
    assert all(at_s == 0 or at_s >= 50 for at_s in one.asked_s)


@pytest.mark.parametrize(
    ("said", "silence_s"),
    [
        ("", SILENCE_S), ("x", SILENCE_S), ("nan", SILENCE_S), ("inf", SILENCE_S),
        ("-inf", SILENCE_S), ("1e308", SILENCE_MAX_S),
        ("1e9", SILENCE_MAX_S), ("15", 45.0), ("0.4", 1.2), ("0.1", 1.0), ("0", 1.0), ("-5", 1.0),
        (str(SILENCE_MAX_S / 3), SILENCE_MAX_S),
    ],
)  # fmt: skip
def test_no_heartbeat_that_a_server_says_makes_a_dead_connection_live_for_ever(
    said: str, silence_s: float
) -> None:
    assert silence_of(said) == pytest.approx(silence_s)
    assert math.isfinite(silence_of(said))


# what is no stream


@pytest.mark.parametrize(
    "kind", ["text/html; charset=utf-8", "application/json", "text/event-streams", ""]
)
async def test_what_is_no_stream_of_events_is_none_though_it_says_200(kind: str) -> None:
    """The page of a hotel's network, or another program at the port."""
    head = [f"Content-Type: {kind}"] if kind else []
    async with world(answer("200 OK", *head, body=event(1, "v2.a"))) as at:
        found = await followed(at, 2)
        assert found.received == []
        assert not [notice for notice in found.notices if isinstance(notice, Connected)]
        assert "no stream of events" in found.lost[0].why
        with pytest.raises(FollowError, match="no stream of events") as refused:
            await followed(at, 2, patient=False)
    assert refused.value.wrong_address


@pytest.mark.parametrize(
    "kind", ["text/event-stream;charset=utf-8", "TEXT/EVENT-STREAM", " text/event-stream ; x=y"]
)
async def test_the_kind_of_content_is_compared_as_the_standard_says(kind: str) -> None:
    async with world(answer("200 OK", f"Content-Type: {kind}", body=event(1, "v2.a"))) as at:
        assert [one.cursor for one in (await followed(at, 1)).received] == ["v2.a"]


@pytest.mark.parametrize(
    "cursor",
    ["a b", "ä", "a\x01b", "a\tb", "v2." + "x" * TEXT_MAX],
    ids=["a space", "no ASCII", "a control character", "a tab", "too long"],
)
async def test_a_cursor_that_cannot_be_sent_back_is_not_taken_and_the_one_before_stays(
    cursor: str,
) -> None:
    """Taken, it would end the program, or be refused at every attempt to come."""
    async with world(stream(event(1, "v2.good") + event(2, cursor))) as at:
        found = await followed(at, 2)
    assert [one.cursor for one in found.received] == ["v2.good", "v2.good"]
    assert at.last_ids() == [None, "v2.good"]
    assert "not a cursor" in found.lost[0].why


async def test_a_place_that_cannot_be_sent_back_is_not_taken_without_an_event_either() -> None:
    async with world(stream(event(1, "v2.good") + b"id: b\x01d\n\n")) as at:
        await followed(at, 2)
    assert at.last_ids() == [None, "v2.good"]


async def test_an_answer_that_is_packed_is_not_unpacked() -> None:
    """It was asked for as it is; a few bytes could become as many megabytes."""
    bomb = gzip.compress(b'{"detail": "' + b"x" * 10_000_000 + b'"}')
    async with world(answer("503 Busy", "Content-Encoding: gzip", body=bomb)) as at:
        (lost,) = (await followed(at, 1)).lost
    assert lost.why == "HTTPStatusError 503 Busy"


async def test_a_stream_that_a_proxy_has_packed_is_no_silent_one() -> None:
    """Nothing in it was an event or a heartbeat, and it never was silent: it was 'connected'."""
    packed = stream(gzip.compress(event(1, "v2.a")), "Content-Encoding: gzip")
    async with world(packed) as at:
        found = await followed(at, 2)
        assert [type(notice) for notice in found.notices] == [Lost, Lost]
        assert "packed as gzip" in found.lost[0].why
        with pytest.raises(FollowError, match="packed as gzip"):
            await followed(at, 2, patient=False)
    async with world(stream(event(1, "v2.a"), "Content-Encoding: identity")) as at:
        assert len((await followed(at, 1)).received) == 1, "the control"


@pytest.mark.parametrize(
    "body",
    [b"", b"nonsense", b"[]", b'{"detail": 5}', b"{}", b"\xff", b"x" * 1_000_000],
    ids=range(7),
)
async def test_a_problem_that_says_nothing_is_named_by_its_status(body: bytes) -> None:
    async with world(answer("500 Oh", body=body)) as at:
        (lost,) = (await followed(at, 1)).lost
    assert lost.why == (
        "HTTPStatusError 500 5" if body.startswith(b'{"detail') else "HTTPStatusError 500 Oh"
    )


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 406, 410, 421, 422])
async def test_what_trying_again_would_not_mend_is_an_error_at_once(status: int) -> None:
    async with world(answer(f"{status} No", body=b'{"detail": "why"}')) as at:
        with pytest.raises(FollowError, match="why") as refused:
            await followed(at, 2)
        assert len(at.heads) == 1
    assert not refused.value.wrong_address


@pytest.mark.parametrize(
    "status", [301, 302, 304, 307, 402, 408, 409, 425, 429, 500, 501, 502, 503, 504]
)
async def test_what_may_pass_is_tried_again(status: int) -> None:
    async with world(answer(f"{status} Wait"), stream(event(1, "v2.a"))) as at:
        found = await followed(at, 2)
    assert [one.cursor for one in found.received] == ["v2.a"]


async def test_a_stream_that_was_there_and_is_not_known_now_is_asked_for_again() -> None:
    """A server that was just started may not know it yet."""
    async with world(
        stream(event(1, "v2.a")), answer("404 Not Found"), stream(event(2, "v2.b"))
    ) as at:
        found = await followed(at, 3)
    assert [one.cursor for one in found.received] == ["v2.a", "v2.b"]
    assert at.last_ids() == [None, "v2.a", "v2.a"]


async def test_nobody_at_the_address_is_waited_for_also_by_who_is_not_patient() -> None:
    (port,) = free_ports(1)
    at = World([b""], url=f"http://127.0.0.1:{port}")
    found = await followed(at, 3, patient=False)
    assert len(found.lost) == 3


# what is asked and where it goes on


@pytest.mark.parametrize(
    ("subscription", "options", "path", "query"),
    [
        ({"streams": ("s",)}, {}, "/v1/streams/s/events", [("from", "latest")]),
        (
            {"streams": ("a", "b")},
            {"start": "earliest"},
            "/v1/events",
            [("stream", "a"), ("stream", "b"), ("from", "earliest")],
        ),
        (
            {"streams": ("s",), "where": "a > 1 AND b = 'x&y'", "select": "a, b AS c"},
            {"on_gap": "stop"},
            "/v1/streams/s/events",
            [
                ("where", "a > 1 AND b = 'x&y'"),
                ("select", "a, b AS c"),
                ("from", "latest"),
                ("on_gap", "stop"),
            ],
        ),
    ],
    ids=["one stream", "two streams", "a filter"],
)
async def test_what_is_asked_for_stands_in_the_address(
    subscription: dict[str, object],
    options: dict[str, object],
    path: str,
    query: list[tuple[str, str]],
) -> None:
    async with world(stream(event(1, "v2.a"))) as at:
        following = Follower(
            [at.url + "/"], Subscription(**subscription), clock=at.clock, **options
        )  # type: ignore[arg-type]
        async with contextlib.aclosing(following.events()) as events:
            await anext(events)
    target = urlsplit(at.heads[0].split(" ")[1])
    assert (target.path, parse_qsl(target.query)) == (path, query)


async def test_a_cursor_is_sent_from_the_first_connection_on() -> None:
    async with world(stream(event(2, "v2.b"))) as at:
        await followed(at, 2, cursor="v2.a")
    assert at.last_ids() == ["v2.a", "v2.b"]


@pytest.mark.parametrize(
    ("body", "cursors", "next_id"),
    [
        (event(1, "v2.a") + event(2, "v2.b"), ["v2.a", "v2.b"], "v2.b"),
        (event(1, "v2.a") + b"id: v2.c\n\n", ["v2.a"], "v2.c"),
        (event(1, "v2.a") + b'id: v2.b\ndata: {"n"', ["v2.a"], "v2.a"),
        (event(1, "v2.a") + b'id: v2.b\ndata: {"n": 2}\n', ["v2.a"], "v2.a"),
        (event(1, "v2.a") + b"event: checkpoint\nid: v2.d\ndata: {}\n\n", ["v2.a"], "v2.d"),
        (b": nothing yet\n\n", [], None),
    ],
    ids=[
        "two events",
        "a place alone",
        "half an event",
        "an event without its end",
        "a checkpoint",
        "a comment",
    ],
)
async def test_the_next_connection_goes_on_behind_what_was_given_out(
    body: bytes, cursors: list[str], next_id: str | None
) -> None:
    async with world(stream(body), stream(b"")) as at:
        found = await followed(at, 2)
    assert [one.cursor for one in found.received] == cursors
    assert at.last_ids() == [None, next_id]


async def test_a_server_that_says_later_was_no_connection() -> None:
    """It let us in to tell us to come again: the error of the other one counts still."""
    async with (
        world(stream(b"retry: 1\n\n", "Edgewake-Start: later")) as later,
        world(answer("404 Not Found")) as other,
    ):
        with pytest.raises(FollowError):
            await followed(later, 9, other.url)
    assert len(later.heads) == 2, "both were asked twice"


async def test_nothing_more_to_come_is_the_end() -> None:
    async with world(stream(event(1, "v2.a")), answer("204 No Content")) as at:
        found = await followed(at, 99)
    assert ([one.cursor for one in found.received], len(at.heads)) == (["v2.a"], 2)


async def test_an_address_that_is_named_twice_is_one() -> None:
    async with world(answer("404 Not Found")) as at:
        with pytest.raises(FollowError):
            await followed(at, 9, at.url + "/", at.url)
    assert len(at.heads) == 1


def test_no_server_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Follower([], Subscription(streams=("s",)))
