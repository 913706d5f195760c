"""A web server that is polled, at its own pace and at its worst: what is taken once, how often it
is asked, what is left.
"""

from __future__ import annotations

import asyncio

import pytest

from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.web.http_poll import TAG_CHARS_MAX, HttpPoll, HttpPollConfig, usable_tag
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.errors import RemoteError, Unavailable
from tests.edge.sources.cage import answered, answering, head_of, served
from tests.edge.sources.sink import MemorySink, context, running


class Patient(FakeClock):
    """A clock whose sleeper wakes when a test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []
        self.go = asyncio.Semaphore(0)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 3))
        await self.go.acquire()
        self.advance(seconds)


def source(
    port: int, position: str | None = None, clock: FakeClock | None = None, **more: object
) -> HttpPoll:
    config = HttpPollConfig(
        type="http_poll", stream="s", url=f"http://127.0.0.1:{port}/", **({"interval_s": 10} | more)
    )  # type: ignore[arg-type]
    return HttpPoll(config, context(position, clock or Patient()))


def body(n: int, *headers: str) -> bytes:
    return answered(b'{"n": %d}' % n, *headers)


NOT_MODIFIED = answered(b"", status="304 Not Modified")


async def polled(
    *answers: bytes, times: int, position: str | None = None, sink: MemorySink | None = None
) -> tuple[MemorySink, list[str | None]]:
    """What a source takes of so many questions, and the tags that it asked with."""
    heads: list[dict[str, str]] = []
    clock, sink = Patient(), sink or MemorySink()
    async with (
        served(answering(*answers, heads=heads)) as port,
        running(source(port, position, clock), sink) as one,
    ):
        for number in range(1, times + 1):
            await one.until(lambda number=number: len(clock.slept) == number)
            if number < times:
                clock.go.release()
    return sink, [head.get("if-none-match") for head in heads]


@pytest.mark.parametrize(
    ("answers", "values", "tags"),
    [
        ((body(1), body(2)), [1, 2], [None, None]),
        ((body(1, 'ETag: "a"'), NOT_MODIFIED, body(2, 'ETag: "b"')), [1, 2], [None, '"a"', '"a"']),
        ((body(1, 'ETag: "a"'), body(2), body(3)), [1, 2, 3], [None, '"a"', None]),
        ((body(1, 'ETag: W/"a"'), NOT_MODIFIED), [1], [None, 'W/"a"']),
        ((body(1, "ETag: " + "x" * (TAG_CHARS_MAX + 1)), body(2)), [1, 2], [None, None]),
        (
            (body(1, 'ETag: "a"'), answered(b"nonsense", 'ETag: "b"'), body(3)),
            [1, 3],
            [None, '"a"', '"a"'],
        ),
    ],
    ids=[
        "without a tag",
        "unchanged",
        "a tag that is taken back",
        "a weak tag",
        "a tag past its bound",
        "nonsense keeps the tag before",
    ],
)
async def test_an_answer_is_taken_once_as_far_as_its_tag_tells(
    answers: tuple[bytes, ...], values: list[int], tags: list[str | None]
) -> None:
    sink, asked = await polled(*answers, times=len(answers))
    assert (sink.values(), asked) == (values, tags)


async def test_a_tag_is_committed_with_its_readings_and_only_when_it_changed() -> None:
    sink, _ = await polled(
        body(1, 'ETag: "a"'), body(2, 'ETag: "a"'), body(3, 'ETag: "b"'), times=3
    )
    assert [(count, position and position[1]) for count, position in sink.commits] == [
        (1, '"a"'),
        (1, None),
        (1, '"b"'),
    ]


async def test_after_a_restart_the_tag_that_the_log_kept_is_asked_with() -> None:
    sink, asked = await polled(NOT_MODIFIED, times=1, position='"a"')
    assert (sink.commits, asked) == ([], ['"a"'])


async def test_a_put_that_failed_leaves_the_tag_where_it_was() -> None:
    sink, heads = MemorySink(), list[dict[str, str]]()
    sink.failures = [RuntimeError("the log")]
    async with served(answering(body(1, 'ETag: "a"'), heads=heads)) as port:
        same = source(port)
        async with running(same, sink) as one:
            assert isinstance(await one.error(), RuntimeError)
        async with running(same, sink) as one:
            await one.until(lambda: sink.values() == [1])
    assert [head.get("if-none-match") for head in heads] == [None, None]


async def test_what_is_dropped_by_policy_is_counted_and_the_next_answer_is_taken() -> None:
    sink, clock = MemorySink(), Patient()
    sink.is_full = True
    async with (
        served(answering(body(1), body(2))) as port,
        running(source(port, clock=clock), sink, Policy.DROP_NEWEST) as one,
    ):
        await one.until(lambda: clock.slept)
        sink.free()
        clock.go.release()
        await one.until(lambda: len(clock.slept) == 2)
    assert (sink.values(), sink.lost) == ([2], {"queue_full": 1})


async def test_questions_keep_their_interval_and_what_is_overdue_is_left_out() -> None:
    clock = Patient()
    times = iter([0.0, 3.0, 25.0, 0.0])

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        clock.advance(next(times))  # so long it takes to answer
        writer.write(body(1))
        await writer.drain()
        writer.close()

    async with served(handler) as port, running(source(port, clock=clock)) as one:
        for number in range(1, 5):
            await one.until(lambda number=number: len(clock.slept) == number)
            clock.go.release()
    assert clock.slept[:4] == [10.0, 7.0, 0.0, 10.0]


@pytest.mark.parametrize(
    "status", ["201 Created", "204 No Content", "206 Partial Content", "400 No", "404 No", "500 Oh"]
)
async def test_what_is_not_the_answer_is_named_and_nothing_of_it_is_taken(status: str) -> None:
    async with (
        served(
            answering(answered(b"" if status.startswith("204") else b'{"n": 1}', status=status))
        ) as port,
        running(source(port)) as one,
    ):
        error = await one.error()
    assert isinstance(error, Unavailable)
    assert f"HTTP {status[:3]}" in str(error)
    assert one.sink.commits == []


@pytest.mark.parametrize(("size", "is_taken"), [(1024, True), (1025, False)])
async def test_an_answer_of_just_the_bound_is_taken(size: int, is_taken: bool) -> None:
    clock = Patient()
    async with (
        served(answering(answered(b'{"n": 1}'.ljust(size)))) as port,
        running(source(port, clock=clock, answer_bytes_max=1024)) as one,
    ):
        if is_taken:
            await one.until(lambda: one.sink.values() == [1])
        else:
            assert isinstance(await one.error(), RemoteError)


@pytest.mark.parametrize(
    ("tag", "kept"),
    [
        ("", ""),
        ("x" * TAG_CHARS_MAX, "x" * TAG_CHARS_MAX),
        ("x" * (TAG_CHARS_MAX + 1), ""),
        ("a\nb", ""),
    ],
)
def test_a_tag_is_kept_up_to_its_bound(tag: str, kept: str) -> None:
    assert usable_tag(tag) == kept
