"""Polling a web server: what it answers, and what it does wrong."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from edgewake.edge.sources.items import ITEMS_MAX, found
from edgewake.edge.sources.web.http_client import (
    RETRY_AFTER_MAX_S,
    Request,
    answer,
    not_as_wanted,
    parse_url,
    redirected,
)
from edgewake.edge.sources.web.http_poll import HttpPollConfig, usable_tag
from edgewake.protocol.errors import Rejected, RemoteError
from tests.edge.sources.cage import Handler, answered, caged, head_of, served

EIGHT_MS = 1_794_988_800_000
"""2026-11-18T08:00:00Z."""


def config(port: int, path: str = "/", **more: object) -> HttpPollConfig:
    return HttpPollConfig(
        type="http_poll",
        stream="s",
        url=f"http://127.0.0.1:{port}{path}",
        **({"interval_s": 0.1} | more),
    )  # type: ignore[arg-type]


def always(answer: bytes) -> Handler:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(answer)
        await writer.drain()
        await reader.read()

    return handler


async def test_each_answer_becomes_readings_and_bad_ones_among_them_are_refused(
    tmp_path: Path,
) -> None:
    body = b'{"data": {"values": [{"n": 1}, {"n": "\\u0000"}, 5, {"n": 2}]}}'
    async with (
        served(always(answered(body))) as port,
        caged(tmp_path, config(port, items="data.values", interval_s=3600)) as one,
    ):
        await one.until(lambda: one.intake.taken >= 2, "two readings")
        await one.until(lambda: one.column("n") == [1, 2], "1, 2")
        assert one.intake.refused == {"encoding": 1, "shape": 1}


async def test_an_answer_that_has_not_changed_is_taken_once_also_across_restarts(
    tmp_path: Path,
) -> None:
    asked: list[str] = []
    bodies = iter([b'{"n": 1}', b'{"n": 2}'])
    state = {"tag": '"a"', "body": next(bodies)}

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await head_of(reader)
        asked.append(head.get("if-none-match", ""))
        same = asked[-1] == state["tag"]
        writer.write(
            answered(b"", status="304 Not Modified")
            if same
            else answered(state["body"], f"ETag: {state['tag']}")
        )  # type: ignore[arg-type]

    async with served(handler) as port:
        async with caged(tmp_path, config(port), answering=False) as one:
            await one.until(lambda: asked.count('"a"') >= 2, "two more questions")
            assert one.intake.taken == 1
        asked.clear()
        async with caged(tmp_path, config(port), answering=False) as one:
            await one.until(lambda: asked, "a question after the restart")
            assert asked[0] == '"a"'
            state |= {"tag": '"b"', "body": next(bodies)}
            await one.until(lambda: one.column("n") == [1, 2], "the changed answer, once")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (answered(status="500 Oh"), "HTTP 500"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * 3000,
            "an answer of more than 2048 bytes",
        ),
        (answered(b"{}", "Content-Encoding: gzip"), "a coding that was not asked for"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: " + b"b" * 40_000, "no HTTP/1.1"),
        (b"\x00\x01garbage\r\n\r\n", "no HTTP/1.1"),
        (answered(b"", "Location: /", status="302 Found"), "more than 5 redirects"),
        (
            answered(b"", "Location: file:///etc/passwd", status="302 Found"),
            "a redirect that leads nowhere",
        ),
        (b"", "closed in the middle of an answer"),
    ],
)
async def test_a_server_that_answers_badly_is_named_and_asked_again(
    tmp_path: Path, answer: bytes, says: str
) -> None:
    questions = itertools.count()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        next(questions)
        writer.write(answer)
        await writer.drain()
        if answer:
            await reader.read()
        writer.close()

    async with served(handler) as port, caged(tmp_path, config(port, answer_bytes_max=2048)) as one:
        await one.failed(says)
        before = next(questions)
        await one.until(
            lambda: one.supervisor.failures >= 2 and next(questions) > before + 1,
            "another question",
        )
        assert one.intake.taken == 0


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"n": nan}', "json"), (b'"text"', "shape"), (b"\xff\xfe{", "json"), (b"[" * 900, "json"),
        (b"{" + b",".join(b'"f%d":1' % n for n in range(20_000)) + b"}", "oversize"),
    ],
)  # fmt: skip
async def test_what_is_no_reading_is_refused_and_the_source_lives(
    tmp_path: Path, body: bytes, reason: str
) -> None:
    async with served(always(answered(body))) as port, caged(tmp_path, config(port)) as one:
        await one.until(lambda: one.intake.refused[reason] >= 2, f"refused ({reason}) twice")
        assert one.supervisor.failures == 0


async def test_of_too_many_readings_the_first_are_taken_and_the_others_counted(
    tmp_path: Path,
) -> None:
    body = b"[" + b",".join(b'{"n":%d}' % n for n in range(ITEMS_MAX + 7)) + b"]"
    async with (
        served(always(answered(body))) as port,
        caged(tmp_path, config(port, interval_s=3600)) as one,
    ):
        await one.until(lambda: one.intake.taken == ITEMS_MAX, "all that are taken")
        assert one.intake.refused == {"oversize": 7}


def test_a_token_never_goes_to_another_host_and_never_out_of_tls() -> None:
    request = Request(parse_url("https://a.example/x"), (), (("Authorization", "Bearer t"),))
    assert redirected(request, "/y").secret == request.secret
    assert redirected(request, "https://b.example/y").secret == ()
    assert redirected(request, "https://a.example:444/y").secret == ()
    with pytest.raises(RemoteError, match="from https to http"):
        redirected(request, "http://a.example/y")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x",
        "http://",
        "http://u:p@x/",
        "http://x y/",
        "http://x/\r\nA: b",
        "http://x:99999/",
        "http://ü/",
    ],
)
def test_addresses_that_cannot_be_asked(url: str) -> None:
    with pytest.raises(ValueError, match=r"expected|out of range"):
        parse_url(url)


@pytest.mark.parametrize(
    ("tag", "kept"), [('"a"', '"a"'), ('W/"b"', 'W/"b"'), ("x" * 300, ""), ("a\x01", ""), ("ü", "")]
)
def test_tags_that_cannot_be_sent_back_are_not_kept(tag: str, kept: str) -> None:
    assert usable_tag(tag) == kept


def test_where_the_readings_are() -> None:
    assert found(b'[{"a":1}]') == [{"a": 1}]
    assert found(b'{"a":1}') == [{"a": 1}]
    assert found(b'{"a":1}\n\n{"a":2}\n') == [b'{"a":1}', b'{"a":2}']
    assert found(b'{"x":{"y":[1]}}', "x.y") == [1]
    for document, path in ((b"{", ""), (b'{"x":1}', "x.y"), (b'{"x":1}', "y"), (b"[1]", "x")):
        with pytest.raises(Rejected):
            found(document, path)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("120", 120),
        ("Wed, 18 Nov 2026 08:02:00 GMT", 120),
        ("9" * 400, RETRY_AFTER_MAX_S),
        ("soon", 0),
        ("-5", 0),
        ("²", 0),
    ],
)
async def test_a_server_that_asks_to_wait_is_understood(said: str, seconds: float) -> None:
    async with served(always(answered(b"", f"Retry-After: {said}", status="503 Busy"))) as port:
        request = Request(parse_url(f"http://127.0.0.1:{port}/"))
        async with answer(request, None) as got:
            error = not_as_wanted(request, got, EIGHT_MS)
    assert (str(error), error.retry_after_s) == (f"http://127.0.0.1:{port}/: HTTP 503", seconds)


async def test_a_server_that_asks_to_wait_is_not_asked_again_meanwhile(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    busy = always(answered(b"", "Retry-After: 1800", status="429 Too Many Requests"))
    async with served(busy) as port, caged(tmp_path, config(port)) as one:
        await one.failed("HTTP 429")
        await one.until(lambda: "HTTP 429; started again in 1800 s" in caplog.text, "it waits")
