"""What strangers can make a server log is bounded, and a WebSocket's handshake is answered in
words: a real server, real sockets.
"""

from __future__ import annotations

import asyncio
import logging

import pytest

from edgewake.cloud.web.log import PER_S, Seldom
from tests.web.test_limits import exchange, serving

WRONG = 40
HANDSHAKE = (
    b"GET /events HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


async def test_wrong_requests_are_all_answered_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as port:
        answers = await asyncio.gather(
            *(exchange(port, b"\x16\x03\x01 nonsense\r\n\r\n") for _ in range(WRONG))
        )
    assert [answer[:12] for answer in answers] == [b"HTTP/1.1 400"] * WRONG
    lines = [record for record in caplog.records if "Invalid HTTP request" in record.getMessage()]
    assert len(lines) <= 1


def test_what_was_left_out_is_counted_and_errors_always_pass() -> None:
    seldom = Seldom()

    def said(text: str, at: float, level: int = logging.WARNING) -> str | None:
        record = logging.LogRecord("uvicorn.error", level, "f", 1, text, None, None)
        record.created = at
        return record.getMessage() if seldom.filter(record) else None

    assert [said("wrong", at) for at in (0.0, 1.0, PER_S - 1)] == ["wrong", None, None]
    assert said("another", 1.0) == "another"
    assert said("wrong", PER_S) == "wrong (2 more of these were not logged)"
    assert [said("ours", 0.0, logging.ERROR) for _ in range(2)] == ["ours", "ours"]


async def test_a_websocket_handshake_is_refused_in_words_and_logs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as port:
        answer = await exchange(port, HANDSHAKE)
        offer = await exchange(
            port,
            b"POST /size HTTP/1.1\r\nhost: x\r\nconnection: close, Upgrade\r\nupgrade: "
            b"h2c\r\ncontent-length: 0\r\n\r\n",
        )
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"here events are read by GET" in answer
    assert offer.startswith(b"HTTP/1.1 200"), "another protocol that is offered is passed over"
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
