"""Alerts that are posted: to real servers, good and bad ones."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from edgewake.edge.actions.action import ActionFailed
from edgewake.edge.actions.config import WebhookActionConfig
from edgewake.edge.actions.webhook import WebhookAction
from edgewake.protocol.errors import RemoteError, Unavailable
from tests.edge.actions.helpers import ALERT, config
from tests.services import PATIENCE_S, free_ports


class Server:
    """Answers every POST as it is told, and keeps what came."""

    def __init__(self) -> None:
        self.status, self.headers = 200, {"Content-Length": "0"}
        self.requests: list[tuple[str, dict[str, str], bytes]] = []

    @contextmanager
    def running(self) -> Iterator[str]:
        kept = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                kept.requests.append((self.path, dict(self.headers), body))
                self.send_response(kept.status)
                for name, value in kept.headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
            thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            yield f"http://127.0.0.1:{http.server_port}"
            http.shutdown()
            thread.join()


async def post(url: str, **keys: Any) -> None:
    one = config(type="webhook", url=url, **keys)
    assert isinstance(one, WebhookActionConfig)
    async with WebhookAction(one).prepared() as act:
        await act(ALERT)


async def test_the_alert_is_posted_as_json(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    server = Server()
    server.status = 204
    with server.running() as url:
        await post(f"{url}/hook?for=truck", token_file=token)
    ((path, headers, body),) = server.requests
    t, fields = ALERT.reading
    assert (path, json.loads(body)) == (
        "/hook?for=truck",
        {"device": "truck-12", "stream": "alerts", "t": t, **fields},
    )
    assert (headers["Idempotency-Key"], headers["Authorization"], headers["Content-Type"]) == (
        ALERT.id,
        "Bearer s3cret",
        "application/json",
    )
    assert headers["Host"] == url.removeprefix("http://")


async def test_a_redirection_is_not_followed() -> None:
    elsewhere, server = Server(), Server()
    with elsewhere.running() as target, server.running() as url:
        server.status, server.headers = 307, {"Location": target, "Content-Length": "0"}
        with pytest.raises(ActionFailed, match="answered 307"):
            await post(url)
    assert (len(server.requests), elsewhere.requests) == (1, [])


async def test_what_is_refused_failed() -> None:
    server = Server()
    server.status = 503
    with server.running() as url, pytest.raises(ActionFailed, match="answered 503"):
        await post(url)


async def test_nobody_there_is_found_out_before_anything_is_sent() -> None:
    one = config(type="webhook", url=f"http://127.0.0.1:{free_ports(1)[0]}/")
    assert isinstance(one, WebhookActionConfig)
    with pytest.raises(Unavailable, match="nothing listens there"):
        async with WebhookAction(one).prepared():
            raise AssertionError("nobody is there")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "no HTTP"),
        (b"", "closed"),
        (b"HTTP/1.1 2\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 " + b"2" * 100_000, "no HTTP"),
    ],
)
async def test_a_foreign_server_is_refused_within_bounds(answer: bytes, said: str) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        with pytest.raises((RemoteError, Unavailable), match=said):
            await post(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")


async def test_a_server_that_answers_byte_by_byte_is_given_up_and_let_go() -> None:
    gone = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(b"H")
                await writer.drain()
                await asyncio.sleep(0.05)
        except ConnectionError:
            gone.set()
        finally:
            writer.close()

    async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await post(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        async with asyncio.timeout(PATIENCE_S):
            await gone.wait()
