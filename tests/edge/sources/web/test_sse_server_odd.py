"""Servers of events that are odd, slow or hostile: the place that is kept can be asked for, and its
readings are kept with it.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from edgewake.edge.client.sse import EVENT_BYTES_MAX, SseError
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.web.sse_pull import (
    IDLE_COMMIT_S,
    RETRY_MS,
    RETRY_MS_MAX,
    RETRY_MS_MIN,
    SsePull,
    SsePullConfig,
)
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.errors import RemoteError, Unavailable
from tests.edge.sources import cage
from tests.edge.sources.cage import answered, head_of, served
from tests.edge.sources.sink import MemorySink, context, running

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
answering = partial(cage.answering, then=answered(status="204 No Content"))
"""Then there is no more."""


class Waits(FakeClock):
    """A clock that tells how long was slept."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await super().sleep(seconds)


def source(
    port: int, position: str | None = None, clock: FakeClock | None = None, **more: object
) -> SsePull:
    config = SsePullConfig(type="sse_pull", stream="s", url=f"http://127.0.0.1:{port}/e", **more)  # type: ignore[arg-type]
    return SsePull(config, context(position, clock or FakeClock()))


async def taken(
    *answers: bytes, sink: MemorySink | None = None, position: str | None = None, **more: object
) -> tuple[MemorySink, list[str]]:
    """What a source takes of these answers, and the ids that it asked behind."""
    heads: list[dict[str, str]] = []
    sink = sink or MemorySink()
    async with (
        served(answering(*answers, heads=heads)) as port,
        running(source(port, position, **more), sink) as one,
    ):
        error = await one.error()
        assert error is None, error
    return sink, [head.get("last-event-id", "-") for head in heads]


async def test_what_is_asked_for_is_a_stream_that_nobody_keeps() -> None:
    heads: list[dict[str, str]] = []
    async with served(answering(heads=heads)) as port, running(source(port, "7")) as one:
        await one.error()
    (head,) = heads
    wanted = {
        "": "GET /e HTTP/1.1",
        "accept": "text/event-stream",
        "cache-control": "no-store",
        "last-event-id": "7",
    }
    assert wanted.items() <= head.items()


@pytest.mark.parametrize(
    ("events", "values", "ids"),
    [
        (b'id: 1\ndata: {"n": 1}\n\nid: 2\ndata: {"n": 2}\n\n', [1, 2], ["-", "2"]),
        (b'id: 1\ndata: {"n": 1}\n\ndata: {"n": 2}\n\n', [1, 2], ["-", "1"]),
        (b'data: {"n": 1}\n\n', [1], ["-", "-"]),
        (b'id: 1\ndata: {"n": 1}\n\nid\ndata: {"n": 2}\n\n', [1, 2], ["-", "-"]),
        (b'id: 1\ndata: {"n": 1}\n\nid: 2\ndata: {"n"', [1], ["-", "1"]),
        (b'id: 1\ndata: {"n": 1}\n\nid: 2\n\n', [1], ["-", "2"]),
        (b'id: 1\ndata: nonsense\n\nid: 2\ndata: {"n": 2}\n\n', [2], ["-", "2"]),
        (b'id: 1\ndata: [{"n": 1}, {"n": 2}]\n\n', [1, 2], ["-", "1"]),
        (b'id: 1\ndata: {"n":\ndata: 1}\n\n', [1], ["-", "1"]),
        (b'\xef\xbb\xbfid: 1\r\ndata: {"n": 1}\r\n\r\n', [1], ["-", "1"]),
        (b'id: 1\ndata: \xef\xbb\xbf{"n": 1}\n\n', [1], ["-", "1"]),
    ],
    ids=[
        "each with an id", "one without keeps the id before", "no ids at all",
        "an id that is taken back", "half an event",
        "an id alone moves the place", "nonsense among them", "several in one",
        "an object on two lines", "CR LF and a byte order mark",
        "a byte order mark in the data",
    ],
)  # fmt: skip
async def test_events_become_readings_and_the_next_connection_asks_behind_the_last(
    events: bytes, values: list[object], ids: list[str]
) -> None:
    sink, asked = await taken(HEAD + events)
    assert (sink.values(), asked) == (values, ids)


async def test_a_place_is_committed_with_the_readings_that_led_to_it() -> None:
    sink, _ = await taken(
        HEAD + b'id: 1\ndata: {"n": 1}\n\n', HEAD + b'data: {"n": 2}\n\nid: 3\ndata: {"n": 3}\n\n'
    )
    assert [(count, position and position[1]) for count, position in sink.commits] == [
        (1, "1"),
        (2, "3"),
    ]


async def test_readings_behind_an_id_that_cannot_be_sent_back_are_committed_without_it() -> None:
    sink, asked = await taken(
        HEAD + b'id: good\ndata: {"n": 1}\n\n', HEAD + b'id: b\tad\ndata: {"n": 2}\n\n'
    )
    assert (sink.values(), sink.positions, asked) == ([1, 2], ["good"], ["-", "good", "good"])


async def test_of_several_events_in_one_piece_the_last_id_that_can_be_sent_back_counts() -> None:
    events = (
        b'id: 1\ndata: {"n": 1}\n\nid: 2\ndata: {"n": 2}\n\nid: '
        + b"x" * 2000
        + b'\ndata: {"n": 3}\n\n'
    )
    sink, asked = await taken(HEAD + events)
    assert (sink.values(), sink.positions, asked) == ([1, 2, 3], ["2"], ["-", "2"])


async def test_events_of_other_types_are_no_readings_and_move_the_place() -> None:
    events = (
        b'event: other\nid: 1\ndata: {"n": 1}\n\nevent: wanted\nid: 2\ndata: {"n": 2}\n\nevent: '
        b'other\nid: 3\ndata: {"n": 3}\n\n'
    )
    sink, asked = await taken(HEAD + events, events=("wanted",))
    assert (sink.values(), asked) == ([2], ["-", "3"])


@pytest.mark.parametrize(
    ("seconds", "commits"), [(0.0, 0), (IDLE_COMMIT_S - 1, 0), (IDLE_COMMIT_S, 1)]
)
async def test_ids_without_events_cost_a_write_now_and_then_only(
    seconds: float, commits: int
) -> None:
    """A server that says its place each second would wear the flash out."""
    clock = FakeClock()
    pieces: asyncio.Queue[bytes] = asyncio.Queue()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(HEAD)
        while piece := await pieces.get():
            writer.write(piece)
        writer.close()

    async with served(handler) as port, running(same := source(port, clock=clock)) as one:
        clock.advance(seconds)
        pieces.put_nowait(b"retry: 4321\nid: 5\n\n")
        await one.until(lambda: same._asked_ms == 4321)
        pieces.put_nowait(b'data: {"n": 1}\n\n')
        await one.until(lambda: one.sink.readings)
        quiet = [position for count, position in one.sink.commits if count == 0]
        assert len(quiet) == commits
        assert one.sink.positions[-1] == "5"


@pytest.mark.parametrize(
    ("said", "waits"),
    [
        ((b"",), [RETRY_MS]),
        ((b"retry: 5000\n",), [5000]),
        ((b"retry: 0\n",), [RETRY_MS_MIN]),
        ((b"retry: 99999999\n",), [RETRY_MS_MAX]),
        ((b"retry: soon\n",), [RETRY_MS]),
        ((b"retry: 5000\n", b"", b"data: {}\n\n"), [5000, 5000, 5000]),
        ((b"retry: 5000\n", b"retry: 2000\n"), [5000, 2000]),
    ],
    ids=[
        "nothing said",
        "some seconds",
        "none at all",
        "a day",
        "nonsense",
        "said once, and it holds",
        "said anew",
    ],
)
async def test_the_wait_between_connections_is_what_the_server_asked_for_last(
    said: tuple[bytes, ...], waits: list[int]
) -> None:
    clock = Waits()
    async with (
        served(answering(*(HEAD + each for each in said))) as port,
        running(source(port, clock=clock)) as one,
    ):
        assert await one.error() is None
    assert [round(seconds * 1000) for seconds in clock.slept] == waits


@pytest.mark.parametrize(
    ("said", "wait_s"),
    [(b"", 0.0), (b"c\r\nretry: 7000\n\r\n", 7.0), (b"9\r\nretry: 1\n\r\n", 0.1)],
)
async def test_a_server_that_cuts_the_connection_is_given_the_wait_that_it_asked_for(
    said: bytes, wait_s: float
) -> None:
    """A server that goes down in an orderly way says `retry`, and its connections are cut all the
    same.
    """
    async with served(answering(CHUNKED + said)) as port, running(source(port)) as one:
        error = await one.error()
    assert isinstance(error, Unavailable)
    assert error.retry_after_s == wait_s


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (answered(b"{}"), "HTTP 200, application/json"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "HTTP 200, no content type"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=x\r\n\r\n<html>",
            "HTTP 200, text/html",
        ),
        (answered(b"", status="404 Not Found"), "HTTP 404"),
        (answered(b"", status="500 Oh"), "HTTP 500"),
        (answered(b"", status="205 Reset Content"), "HTTP 205"),
    ],
)
async def test_what_is_no_stream_of_events_is_named_and_nothing_of_it_is_taken(
    answer: bytes, says: str
) -> None:
    async with served(answering(answer)) as port, running(source(port)) as one:
        error = await one.error()
    assert isinstance(error, Unavailable)
    assert says in str(error)
    assert one.sink.commits == []


@pytest.mark.parametrize(
    "kind",
    [
        "text/event-stream",
        "Text/Event-Stream",
        "text/event-stream;charset=utf-8",
        " text/event-stream ; x",
    ],
)
async def test_the_kind_of_content_is_compared_as_the_standard_says(kind: str) -> None:
    sink, _ = await taken(
        f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n".encode() + b'data: {"n": 1}\n\n'
    )
    assert sink.values() == [1]


async def test_an_event_without_an_end_is_refused_before_it_fills_the_memory() -> None:
    async with (
        served(answering(HEAD + b"data: " + b"x" * (EVENT_BYTES_MAX + 100_000))) as port,
        running(source(port)) as one,
    ):
        error = await one.error()
    assert isinstance(error, SseError)
    assert one.sink.commits == []


async def test_a_server_that_answers_in_a_coding_that_was_not_asked_for_is_left() -> None:
    answer = HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    async with served(answering(answer)) as port, running(source(port)) as one:
        assert isinstance(await one.error(), RemoteError)


@pytest.mark.parametrize("coding", ["identity", "Identity", " identity ", ""])
async def test_the_coding_that_is_none_may_be_said(coding: str) -> None:
    head = HEAD.replace(b"\r\n\r\n", f"\r\nContent-Encoding: {coding}\r\n\r\n".encode())
    sink, _ = await taken(head + b'data: {"n": 1}\n\n')
    assert sink.values() == [1]


async def test_while_the_log_is_full_the_place_does_not_move() -> None:
    sink = MemorySink()
    sink.is_full = True
    heads: list[dict[str, str]] = []
    async with (
        served(answering(HEAD + b'id: 1\ndata: {"n": 1}\n\n', heads=heads)) as port,
        running(source(port), sink) as one,
    ):
        await one.until(lambda: heads)
        assert (sink.commits, len(heads)) == ([], 1)
        sink.free()
        assert await one.error() is None
    assert (sink.values(), sink.positions, [head.get("last-event-id") for head in heads]) == (
        [1],
        ["1"],
        [None, "1"],
    )


async def test_what_is_dropped_by_policy_is_counted_and_comes_no_more() -> None:
    sink = MemorySink()
    sink.is_full = True
    async with (
        served(answering(HEAD + b'id: 1\ndata: {"n": 1}\n\n')) as port,
        running(source(port), sink, Policy.DROP_NEWEST) as one,
    ):
        assert await one.error() is None
        assert (one.intake.dropped, sink.lost) == (1, {"queue_full": 1})


async def test_a_put_that_failed_is_asked_for_again() -> None:
    """The source lives on after a failure: its place is behind what was kept, not behind what
    came.
    """
    sink, heads = MemorySink(), list[dict[str, str]]()
    sink.failures = [RuntimeError("the log")]
    event = HEAD + b'id: 1\ndata: {"n": 1}\n\n'
    async with served(answering(event, event, heads=heads)) as port:
        same = source(port)
        async with running(same, sink) as one:
            assert isinstance(await one.error(), RuntimeError)
        async with running(same, sink) as one:
            assert await one.error() is None
    assert (sink.values(), [head.get("last-event-id") for head in heads]) == (
        [1],
        [None, None, "1"],
    )
