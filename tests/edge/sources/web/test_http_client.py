"""Servers that say anything: what is taken for an answer, what for none, and whose fault it is.

Bytes in, no socket.
"""

from __future__ import annotations

import asyncio

import pytest

from edgewake.edge.sources.web.http_client import (
    HEAD_BYTES_MAX,
    Answer,
    Request,
    ask,
    host_of,
    parse_url,
    port_of,
    redirected,
    target_of,
)
from edgewake.protocol.errors import RemoteError, Unavailable
from tests.edge.sources.cage import Written

URL = parse_url("http://device.example/now?x=1")
REQUEST = Request(URL)


async def asked(
    said: bytes,
    *,
    request: Request = REQUEST,
    cut: int | None = None,
) -> tuple[Answer, Written]:
    """Ask a server that says this, in pieces of `cut` bytes, and closes."""
    reader, wire = asyncio.StreamReader(), Written()
    if cut is None:
        reader.feed_data(said)
    else:

        async def trickle() -> None:
            for at in range(0, len(said), cut):
                reader.feed_data(said[at : at + cut])
                await asyncio.sleep(0)
            reader.feed_eof()

        task = asyncio.create_task(trickle())
    if cut is None:
        reader.feed_eof()
    try:
        return await ask(request, reader, wire), wire  # type: ignore[arg-type]
    finally:
        if cut is not None:
            await task


async def body_of(
    said: bytes, *, bytes_max: int = 1000, cut: int | None = None
) -> tuple[int, bytes]:
    got, _ = await asked(said, cut=cut)
    return got.status, await got.body(bytes_max=bytes_max, time_s=5)


HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("cut", [None, 1, 7], ids=["whole", "byte by byte", "in sevens"])
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (HEAD + b"Content-Length: 2\r\n\r\nok", (200, b"ok")),
        (HEAD + b"content-length:2\r\n\r\nok", (200, b"ok")),
        (HEAD + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok", (200, b"ok")),
        (HEAD + b"Content-Length: 0\r\n\r\n", (200, b"")),
        (HEAD + b"\r\nok until the end", (200, b"ok until the end")),
        (b"HTTP/1.0 200 OK\r\n\r\nok", (200, b"ok")),
        (
            HEAD
            + b"Transfer-Encoding: chunked\r\n\r\n"
            + b"2\r\nok\r\n1;x=y\r\n!\r\n0\r\nTrailer: 1\r\n\r\n",
            (200, b"ok!"),
        ),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
            + HEAD
            + b"Content-Length: 2\r\n\r\nok",
            (200, b"ok"),
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", (204, b"")),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n", (304, b"")),
        (HEAD + b"Content-Length: 2\r\n\r\nok and more than it said", (200, b"ok")),
        (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", (200, b"ok")),
        (b"HTTP/1.1 599 \r\nContent-Length: 2\r\n\r\nok", (599, b"ok")),
        (HEAD + b"Content-Length: 2\n\nok", (200, b"ok")),
    ],
    ids=[
        "with a length", "small letters", "the length twice", "nothing",
        "to the end of the connection", "an old server", "in chunks",
        "after what is no answer yet", "no content", "not modified", "more than it said",
        "no reason", "a number nobody knows", "LF alone",
    ],
)  # fmt: skip
async def test_a_body_is_what_the_server_says_it_is(
    said: bytes, expected: tuple[int, bytes], cut: int | None
) -> None:
    assert await body_of(said, cut=cut) == expected


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTT",
        HEAD,
        HEAD + b"Content-Length: 3\r\n\r\nok",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\no",
        b"HTTP/1.1 100 Continue\r\n\r\n",
    ],
    ids=[
        "at once",
        "in the version",
        "in the head",
        "in the body",
        "before a chunk",
        "before the last chunk",
        "in a chunk",
        "after 100",
    ],
)
async def test_a_server_that_closes_too_early_is_away_and_may_be_asked_again(said: bytes) -> None:
    with pytest.raises(Unavailable):
        await body_of(said)


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 2, 3\r\n\r\nok",
        HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        HEAD + b"Content-Length: 0x2\r\n\r\nok",
        HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\noknot\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\n",
        HEAD + b"A\0: b\r\n\r\n",
        HEAD + b"A: b\0\r\n\r\n",
        HEAD + b": b\r\n\r\n",
        HEAD + b"A: " + b"b" * 2 * HEAD_BYTES_MAX,
        (HEAD + b"A: b\r\n" * HEAD_BYTES_MAX),
    ],
    ids=[
        "SSH", "TLS", "HTTP/2", "letters for a status", "two digits", "a negative length",
        "two lengths in one", "two lengths",
        "hexadecimal", "two codings", "a chunk that is none", "a chunk that is longer",
        "a chunk of 2^160 bytes", "NUL in a name", "NUL in a value",
        "no name", "one endless header", "endless headers",
    ],
)  # fmt: skip
async def test_what_is_no_http_is_the_servers_fault(said: bytes) -> None:
    with pytest.raises(RemoteError, match=r"no HTTP/1\.1"):
        await body_of(said)


@pytest.mark.parametrize("framing", ["length", "chunks", "close"])
async def test_a_body_of_just_the_bound_is_taken_and_one_byte_more_is_not(framing: str) -> None:
    def said(size: int) -> bytes:
        data = b"x" * size
        if framing == "length":
            return HEAD + b"Content-Length: %d\r\n\r\n" % size + data
        if framing == "chunks":
            return (
                HEAD
                + b"Transfer-Encoding: chunked\r\n\r\n"
                + b"".join(b"1\r\nx\r\n" for _ in range(size))
                + b"0\r\n\r\n"
            )
        return HEAD + b"\r\n" + data

    assert await body_of(said(100), bytes_max=100) == (200, b"x" * 100)
    with pytest.raises(RemoteError, match="more than 100 bytes"):
        await body_of(said(101), bytes_max=100)


async def test_a_server_that_stops_in_the_middle_is_left_after_its_time() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(HEAD + b"Content-Length: 10\r\n\r\nhalf")
    got = await ask(Request(URL), reader, Written())  # type: ignore[arg-type]
    with pytest.raises(Unavailable):
        await got.body(bytes_max=100, time_s=0.01)


async def test_silence_between_two_pieces_ends_a_stream() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(HEAD + b"\r\none")
    got = await ask(Request(URL), reader, Written())  # type: ignore[arg-type]
    pieces = got.pieces(silence_s=0.01)
    assert await anext(pieces) == b"one"
    with pytest.raises(Unavailable, match="nothing came"):
        await anext(pieces)


async def test_of_several_headers_of_one_name_the_last_counts_and_names_are_small() -> None:
    got, _ = await asked(HEAD + b"ETag: a\r\nX-Y: \xe9\r\netag: b\r\nContent-Length: 0\r\n\r\n")
    assert (got.headers["etag"], got.headers["x-y"]) == ("b", "\xe9")


async def test_what_is_asked_names_the_host_wants_no_coding_and_closes() -> None:
    _, wire = await asked(
        HEAD + b"\r\n", request=Request(URL, (("Accept", "a/b"),), (("Authorization", "Bearer t"),))
    )
    first, *headers = wire.said.decode().split("\r\n")
    assert first == "GET /now?x=1 HTTP/1.1"
    expected = [
        "Host: device.example",
        "User-Agent: edgewake-agent",
        "Accept-Encoding: identity",
        "Connection: close",
    ]
    assert headers == [*expected, "Accept: a/b", "Authorization: Bearer t", "", ""]


@pytest.mark.parametrize("body", [b"", b"{}", b"x" * 100_000], ids=["nothing", "a little", "much"])
async def test_what_is_posted_has_its_length(body: bytes) -> None:
    _, wire = await asked(HEAD + b"\r\n", request=Request(URL, body=body))
    head, _, sent = wire.said.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /now?x=1 HTTP/1.1\r\n")
    assert b"Content-Length: %d" % len(body) in head
    assert sent == body


@pytest.mark.parametrize("value", ["a\r\nEvil: 1", "a\nb", "a\0b"])
async def test_a_header_that_would_be_two_is_not_sent(value: str) -> None:
    with pytest.raises(RemoteError, match="a header that cannot be sent"):
        await asked(HEAD + b"\r\n", request=Request(URL, (("Last-Event-ID", value),)))


@pytest.mark.parametrize(
    ("text", "host", "port", "target"),
    [
        ("http://h", "h", 80, "/"),
        ("https://h", "h", 443, "/"),
        ("ws://h/", "h", 80, "/"),
        ("wss://h", "h", 443, "/"),
        ("http://H.Example:8080/a/b?c=d#e", "h.example:8080", 8080, "/a/b?c=d"),
        ("http://h?c", "h", 80, "/?c"),
        ("http://[::1]:81/x", "[::1]:81", 81, "/x"),
        ("https://[fe80::1]", "[fe80::1]", 443, "/"),
        ("http://h:80/", "h:80", 80, "/"),
    ],
)
def test_an_address_is_asked_at_its_host_and_port(
    text: str, host: str, port: int, target: str
) -> None:
    url = parse_url(text, "http", "https", "ws", "wss")
    assert (host_of(url), port_of(url), target_of(url)) == (host, port, target)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("http://h/ä", "expected ASCII"),
        ("http://h/a b", "expected ASCII"),
        ("http://h/\r\nEvil: 1", "expected ASCII"),
        ("http://h/\0", "expected ASCII"),
        ("HTTP//h", "begins with http:// or https://"),
        ("ws://h", "begins with http:// or https://"),
        ("http://", "with a host"),
        ("http://:80", "with a host"),
        ("http://u:p@h", "token_file"),
        ("http://u@h", "token_file"),
        ("http://h:x", "ort"),
        ("http://h:65536", "ort"),
        ("http://[::1", "IPv6"),
    ],
)
def test_what_is_no_address_is_refused_with_its_reason(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_url(text)


@pytest.mark.parametrize(
    ("location", "leads_to", "keeps_secret"),
    [
        ("/other", "http://h:8000/other", True),
        ("other?x=1", "http://h:8000/a/other?x=1", True),
        ("?x=1", "http://h:8000/a/b?x=1", True),
        ("//h:8000/c", "http://h:8000/c", True),
        ("http://H:8000/c", "http://H:8000/c", True),
        ("http://h:8001/c", "http://h:8001/c", False),
        ("https://h:8000/c", "https://h:8000/c", False),
        ("http://h.evil.example/c", "http://h.evil.example/c", False),
        ("http://h/c", "http://h/c", False),
    ],
)
def test_a_redirect_leads_on_and_secrets_stay_with_their_host(
    location: str, leads_to: str, keeps_secret: bool
) -> None:
    request = Request(parse_url("http://h:8000/a/b?c=d"), secret=(("Authorization", "Bearer t"),))
    after = redirected(request, location)
    assert (after.url.geturl(), bool(after.secret)) == (leads_to, keeps_secret)


@pytest.mark.parametrize(
    "location",
    ["", "file:///etc/passwd", "http://u:p@h/", "http://h:99999/", "http://h/\xe9", "http://[::1"],
)
def test_a_redirect_that_leads_nowhere_is_the_servers_fault(location: str) -> None:
    """An empty one leads to the address itself, which is one."""
    if location:
        with pytest.raises(RemoteError, match="leads nowhere"):
            redirected(Request(URL), location)
    else:
        assert redirected(Request(URL), location).url == URL
