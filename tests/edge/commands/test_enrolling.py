"""A claim code becomes a password and a broker."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgewake.edge.config import AgentConfig
from edgewake.protocol.config import load
from tests.edge.commands.test_setting_up import init


class Enrolling(http.server.BaseHTTPRequestHandler):
    """Answers as the operations API does; `answer` is what it says."""

    status, answer = 200, b""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def server(status: int, answer: object) -> Iterator[str]:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    handler = type("Handler", (Enrolling,), {"status": status, "answer": body})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as one:
        thread = threading.Thread(target=one.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{one.server_address[1]}"
        finally:
            one.shutdown()
            thread.join()


def test_a_claim_code_gives_password_and_broker(tmp_path: Path) -> None:
    given = {
        "items": [{"device": "house", "password": "secret"}],
        "broker": {"host": "10.0.0.1", "port": 8710},
    }
    file = tmp_path / "agent.toml"
    with server(200, given) as url:
        done = init(file, "--claim", "AAAA", "--server", url)
    assert done.exit_code == 0, done.output
    mqtt = load(AgentConfig, file).mqtt
    assert (mqtt.host, mqtt.port, mqtt.username) == ("10.0.0.1", 8710, "house")
    assert mqtt.password_file == tmp_path / "agent.password"
    assert mqtt.password_file.read_text() == "secret\n"
    assert mqtt.password_file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("status", "answer", "says"),
    [
        (403, {"detail": "this code is not known"}, "this code is not known"),
        (502, b"<html>", "answered 502"),
        (200, b"<html>", "not one of the operations API"),
        (200, {"items": []}, "not one of the operations API"),
        (200, b"[" * 20_000, "not one of the operations API"),
    ],
)
def test_a_refusal_or_another_server_is_said_and_leaves_no_file(
    tmp_path: Path, status: int, answer: object, says: str
) -> None:
    with server(status, answer) as url:
        done = init(tmp_path / "agent.toml", "--claim", "AAAA", "--server", url)
    assert done.exit_code == 1
    assert says in done.output
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_or_dead_server_is_said(tmp_path: Path) -> None:
    for url, says in (("ftp://x", "expected http"), ("http://127.0.0.1:1", "does not answer")):
        done = init(tmp_path / "agent.toml", "--claim", "AAAA", "--server", url)
        assert done.exit_code == 1
        assert says in done.output
