"""The link that logs a browser in once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from edgewake.deploy import login_link


@contextmanager
def api(status: int, body: bytes, asked: list[tuple[str, str, str | None]]) -> Iterator[str]:
    """An operations API that answers so."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append((self.command, self.path, self.headers["Authorization"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "ops.key"
    path.write_text("ew_key\n")
    return path


def test_a_fresh_ticket_is_asked_for_with_the_key(key_file: Path) -> None:
    asked: list[tuple[str, str, str | None]] = []
    with api(201, b'{"path":"/in?ticket=1"}', asked) as url:
        assert login_link.make(url, key_file) == f"{url}/in?ticket=1"
    assert asked == [("POST", "/v1/tickets", "Bearer ew_key")]


@pytest.mark.parametrize(
    ("status", "body"), [(401, b"{}"), (500, b""), (201, b"no json"), (201, b"{}")]
)
def test_where_there_is_no_ticket_the_login_page_is_the_link(
    status: int, body: bytes, key_file: Path
) -> None:
    with api(status, body, []) as url:
        assert login_link.make(url, key_file) == f"{url}/in"


def test_without_a_key_or_an_api_the_login_page_is_the_link(key_file: Path) -> None:
    assert login_link.make("http://127.0.0.1:9", key_file) == "http://127.0.0.1:9/in"
    assert login_link.make("http://127.0.0.1:9", key_file / "gone") == "http://127.0.0.1:9/in"
