"""Commands at an address where another program answers, or an API with texts of hostile devices: a
sentence, nothing for the terminal.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edgewake.deploy.cli import edgewake

REQUESTS_MAX = 20
"""More of them by one command: it does not end."""
HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b5m\u202e"
_ROW = dict.fromkeys(
    (
        "device",
        "name",
        "state",
        "detail",
        "reason",
        "id",
        "part",
        "body",
        "stream",
        "reply",
        "letter",
    ),
    HOSTILE,
)
_ROW |= {
    "last_seen": 10**20,
    "asked_at": -(10**17),
    "received_at": 0,
    "records_per_s": 1.0,
    "readings_per_s": 9.0,
}
ANSWERS = {
    "a page for people": b"<html>hello</html>",
    "another object": b'{"id": 1}',
    "a list without end": b'{"items":[],"next":7,"total":0}',
    "hostile texts": json.dumps(
        _ROW
        | {
            "items": [_ROW],
            "next": None,
            "total": 1,
            "text": HOSTILE,
            "columns": [{"name": HOSTILE}],
            "rows": [[HOSTILE]],
        }
        | {
            "is_cut": False,
            "present": {"records_left": 0},
            "past": {"lost_records": 0},
            "answer": {"detail": HOSTILE},
        }
    ).encode(),
    "a refusal": json.dumps({"detail": HOSTILE, "title": HOSTILE}).encode(),
}
SHORT = ("a page for people", "hostile texts")
"""Answers that `make test` gives to all commands."""
COMMANDS = (
    "devices list", "devices show d", "devices remove d", "streams list", "streams show s",
    "streams keep s", "streams keep s --days 3",
    "leases", "dead-letters list",
    "dead-letters replay 1", "ack 0.1", "status", "sql SELECT", "summary", "summary s f",
    "query list", "query show q", "query add FILE",
    "query replace FILE", "query check FILE", "query preview FILE", "query repair q --from 1h",
    "query rebuild q", "query rebuild --all",
    "query repairs q", "command d x", "config get d", "config set d FILE", "requests",
    "reply d 1 x",
)  # fmt: skip


class Server(ThreadingHTTPServer):
    """Answers everything in the same way."""

    daemon_threads = True
    answer = b""
    status = 200
    asked = 0


class Handler(BaseHTTPRequestHandler):
    """See Server."""

    server: Server

    def do_GET(self) -> None:
        self.server.asked += 1
        self.send_response(self.server.status if self.server.asked <= REQUESTS_MAX else 404)
        self.send_header("Content-Length", str(len(self.server.answer)))
        self.end_headers()
        self.wfile.write(self.server.answer)

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815  (names of http.server)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (http.server's)
        """Be quiet."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def invoked(server: Server, line: str, file: Path) -> Result:
    name, *rest = line.replace("FILE", str(file)).split()
    about = ["--ops", f"http://127.0.0.1:{server.server_port}", "--key", "k" * 20, "--table"]
    return CliRunner().invoke(edgewake, [name, *about, *rest])


@pytest.mark.parametrize(
    "what", [one if one in SHORT else pytest.param(one, marks=pytest.mark.long) for one in ANSWERS]
)
def test_every_command_ends_with_words_and_leaves_the_terminal_alone(
    server: Server, tmp_path: Path, what: str
) -> None:
    file = tmp_path / "query.sql"
    file.write_text("SELECT 1")
    server.answer, server.status = ANSWERS[what], 500 if what == "a refusal" else 200
    for line in COMMANDS:
        server.asked = 0
        done = invoked(server, line, file)
        assert done.exception is None or isinstance(done.exception, SystemExit), (
            line,
            done.exception,
        )
        assert done.exit_code == 0 or done.output.strip(), (line, "says why")
        assert server.asked <= REQUESTS_MAX, (line, "does not end")
        assert not set(done.output) & set("\x1b\x07\x9b\u202e"), (line, done.output)
