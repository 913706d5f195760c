from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from time import asctime, gmtime

import orjson
import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from edgewake.cloud.calls.webhook import (
    BODY_BYTES_MAX,
    RETRY_AFTER_MAX_S,
    Caller,
    Failed,
    Gone,
    Signed,
    Taken,
    check_secret,
    make_secret,
    outcome,
    signed_headers,
    wake_body,
)
from edgewake.protocol.clock import SystemClock
from tests.push.receiver import receiving

SECRET = make_secret(lambda n: bytes(range(n)))
WAKE = Signed(SECRET, "msg_1_1", '{"type":"edgewake.wake"}')
NOW_MS = 1_790_000_000_000


@pytest.fixture
def caller() -> Callable[..., Caller]:
    """Makes callers."""
    return lambda **more: Caller(SystemClock(), **{"allow_hosts": ["127.0.0.1"], **more})


def facts(**more: object) -> dict[str, object]:
    some = {"lease": "1", "cursor": "v1.abc", "count": 1, "capped": False, "gap": False}
    return {**some, "urgency": "normal", "again": 0, "streams": ["s"], **more}


async def test_the_library_verifies_what_was_received(caller: Callable[..., Caller]) -> None:
    async with receiving() as receiver:
        assert await caller().call(receiver.url, WAKE) == Taken()
    assert receiver.calls[0].verified(SECRET) == {"type": "edgewake.wake"}


async def test_a_changed_body_an_old_time_and_another_secret_do_not_verify() -> None:
    now = time.time_ns() // 1_000_000
    headers = signed_headers(SECRET, "m", "{}", at_ms=now)
    for secret, body, sent in [
        (SECRET, "[]", headers),
        (make_secret(lambda n: b"x" * n), "{}", headers),
        (SECRET, "{}", signed_headers(SECRET, "m", "{}", at_ms=now - 360_000)),
        (SECRET, "{}", {**headers, "webhook-id": "n"}),
    ]:
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(body, sent)


@pytest.mark.parametrize(
    "secret",
    ["", "whsec_", "whsec_!!!", "secret", "whsec_" + "QUJD", make_secret(lambda _: b"x" * 65)],
)
def test_a_secret_of_the_wrong_length_or_form_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match="whsec_"):
        check_secret(secret)


@pytest.mark.parametrize(
    ("status", "retry_after", "expected"),
    [
        (200, None, Taken()),
        (204, None, Taken()),
        (410, None, Gone("the endpoint answered 410")),
        (404, None, Failed("the endpoint answered 404", status=404)),
        (301, None, Failed("the endpoint answered 301", status=301)),
        (307, None, Failed("the endpoint answered 307", status=307)),
        (400, None, Failed("the endpoint answered 400", status=400)),
        (500, "10", Failed("the endpoint answered 500", status=500)),
        (429, "10", Failed("the endpoint answered 429", 10.0, status=429)),
        (
            503,
            formatdate(NOW_MS / 1000 + 60, usegmt=True),
            Failed("the endpoint answered 503", 60.0, status=503),
        ),
        (
            503,
            "Mon, 01 Jan 99999999999 00:00:00 GMT",
            Failed("the endpoint answered 503", status=503),
        ),
        (
            429,
            "Mon, 01 Jan 2024 00:00:00 +99999999999999999999",
            Failed("the endpoint answered 429", status=429),
        ),
        (
            503,
            asctime(gmtime(NOW_MS // 1000 + 60)),
            Failed("the endpoint answered 503", 60.0, status=503),
        ),
        (503, "9" * 30, Failed("the endpoint answered 503", RETRY_AFTER_MAX_S, status=503)),
        (503, "soon", Failed("the endpoint answered 503", status=503)),
        (503, "-1", Failed("the endpoint answered 503", status=503)),
    ],
)
def test_what_an_answer_means(status: int, retry_after: str | None, expected: object) -> None:
    assert outcome(status, retry_after, now_ms=NOW_MS) == expected


async def test_a_redirect_is_a_failure_and_its_place_is_never_called(
    caller: Callable[..., Caller],
) -> None:
    async with receiving() as canary, receiving() as receiver:
        receiver.answer = lambda _: (302, {"location": canary.url})
        assert await caller().call(receiver.url, WAKE) == Failed(
            "the endpoint answered 302", status=302
        )
        assert canary.connections == 0


async def test_an_endpoint_that_hangs_is_given_up_after_the_time_out(
    caller: Callable[..., Caller],
) -> None:
    async with receiving() as receiver:
        receiver.answer = lambda _: None
        assert await caller(timeout_s=0.2).call(receiver.url, WAKE) == Failed(
            "no answer within 0.2 s"
        )


async def test_a_refused_connection_is_a_failure(caller: Callable[..., Caller]) -> None:
    async with receiving() as receiver:
        url = receiver.url
    assert isinstance(await caller().call(url, WAKE), Failed)


async def test_a_name_that_turns_to_an_inner_address_after_the_first_answer_is_never_connected_to(
    caller: Callable[..., Caller],
) -> None:
    """DNS rebinding: public when the lease is made, the loopback when it is called."""
    answers = iter([["8.8.8.8"], ["127.0.0.1"]])

    async def flips(_: str, __: int) -> Sequence[str]:
        return next(answers)

    async with receiving() as canary:
        guarded = caller(allow_hosts=(), resolver=flips)
        await guarded.check("https://rebind.example/")
        assert await guarded.call("https://rebind.example/", WAKE) == Failed(
            "endpoint rebind.example: not a public address"
        )
        assert canary.connections == 0


async def test_an_address_that_takes_no_connection_is_passed_over_for_the_next(
    caller: Callable[..., Caller],
) -> None:
    async def two(_: str, __: int) -> Sequence[str]:
        return ["127.0.0.9", "127.0.0.1"]

    async with receiving() as receiver:
        many = caller(allow_hosts=["hooks.example"], resolver=two)
        assert await many.call(f"http://hooks.example:{receiver.port}/x", WAKE) == Taken()


async def test_a_request_that_was_sent_is_not_sent_to_the_next_address_too(
    caller: Callable[..., Caller],
) -> None:
    async def twice(_: str, __: int) -> Sequence[str]:
        return ["127.0.0.1", "localhost"]

    async with receiving() as receiver:
        receiver.answer = lambda _: (503, {})
        many = caller(allow_hosts=["hooks.example"], resolver=twice)
        assert await many.call(f"http://hooks.example:{receiver.port}/x", WAKE) == Failed(
            "the endpoint answered 503", status=503
        )
        assert len(receiver.calls) == 1


async def test_the_checked_address_is_called_with_the_name_as_host_and_as_sni(
    caller: Callable[..., Caller], tmp_path: Path
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    request = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj "
        "/CN=hooks.example"
    )
    names = [
        "-addext",
        "subjectAltName=DNS:hooks.example",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    subprocess.run([*request.split(), *names], check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    asked: list[str | None] = []
    server.sni_callback = lambda _, name, __: asked.append(name)

    async def here(_: str, __: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async with receiving(tls=server) as receiver:
        trusting = caller(
            allow_hosts=["hooks.example", "other.example"],
            resolver=here,
            tls=ssl.create_default_context(cafile=certificate),
        )
        assert await trusting.call(f"https://hooks.example:{receiver.port}/x", WAKE) == Taken()
        # Not its certificate.
        assert isinstance(
            await trusting.call(f"https://other.example:{receiver.port}/x", WAKE), Failed
        )
    assert asked == ["hooks.example", "other.example"]
    assert [call.headers["host"] for call in receiver.calls] == [f"hooks.example:{receiver.port}"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", Taken()),
        (b"HTTP/1.0 200\r\n\r\n", Taken()),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", Taken()),
        (
            b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 410 Gone\r\n\r\n",
            Gone("the endpoint answered 410"),
        ),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
            Failed("the endpoint answered 101", status=101),
        ),
        (
            b"HTTP/1.1 429 X\r\nRETRY-AFTER: 7\r\n\r\n",
            Failed("the endpoint answered 429", 7.0, status=429),
        ),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\nbegin", Taken()),
    ],
)
async def test_what_counts_of_an_answer_is_its_head(
    answer: bytes, expected: object, caller: Callable[..., Caller]
) -> None:
    async with answering(answer) as url:
        assert await caller().call(url, WAKE) == expected


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 20",
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000,
        b"HTTP/1.1 200 OK\r\n",
    ],
)
async def test_what_is_no_answer_is_a_failure(answer: bytes, caller: Callable[..., Caller]) -> None:
    async with answering(answer) as url:
        assert isinstance(await caller().call(url, WAKE), Failed)


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """An endpoint that says these bytes and ends the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(WAKE.body.encode())
            writer.write(answer)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"


def test_a_body_takes_as_many_previews_as_fit_and_no_more_than_3_kb() -> None:
    body = wake_body(facts(), [{"text": "x" * 900} for _ in range(10)], at_ms=NOW_MS)
    assert len(body) <= BODY_BYTES_MAX
    assert len(orjson.loads(body)["events"]) == 3


def test_a_cursor_that_does_not_fit_is_left_out() -> None:
    body = wake_body(facts(cursor="v1." + "a" * 4000), [], at_ms=NOW_MS)
    assert len(body) <= BODY_BYTES_MAX
    assert orjson.loads(body)["cursor"] is None
