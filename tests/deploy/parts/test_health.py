"""The containers' health check: a part that hangs is ended, one that starts slowly is not."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from edgewake.deploy.parts.health import FAILURES_MAX, children, look
from tests.services import wait_until


class Part(HTTPServer):
    """Answers as a part does whose main loop turns, or hangs."""

    status = 200


class Handler(BaseHTTPRequestHandler):
    """See Part."""

    server: Part

    def do_GET(self) -> None:
        self.send_response(self.server.status if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (http.server's)
        """Be quiet."""


@pytest.fixture
def part() -> Iterator[Part]:
    with Part(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def init() -> Iterator[subprocess.Popen[bytes]]:
    """A first process with a child, which ends with it."""
    first = (
        "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', 'import sys; "
        "sys.stdin.read()'], stdin=0).returncode)"
    )
    with subprocess.Popen([sys.executable, "-c", first], stdin=subprocess.PIPE) as process:
        wait_until(lambda: list(children(process.pid)) != [], "the part runs")
        yield process
        process.kill()


def test_a_part_that_hangs_is_ended_after_some_looks(
    part: Part, init: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    def is_well(status: int) -> bool:
        part.status = status
        return look(str(part.server_port), tmp_path / "health", init=init.pid)

    for status in (200, *[503] * (FAILURES_MAX - 1), 200, *[503] * (FAILURES_MAX - 1)):
        assert is_well(status) == (status == 200)
    assert init.poll() is None, "not as many in a row"
    assert not is_well(503)
    wait_until(lambda: init.poll() is not None, "the container has ended")


def test_a_part_that_was_never_well_is_left_to_start(
    init: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    with HTTPServer(("127.0.0.1", 0), Handler) as unused:
        port = str(unused.server_port)
    for _ in range(2 * FAILURES_MAX):
        assert not look(port, tmp_path / "health", init=init.pid)
    assert init.poll() is None
