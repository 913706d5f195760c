"""The page's server before hostile browsers, slow clients and whoever else can reach the
loopback.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from edgewake.edge.page import server as page_server
from edgewake.edge.page.page import POLICY
from edgewake.edge.page.server import PageServer, _names
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.errors import LocalError
from tests.edge.helpers import opened, put
from tests.services import PATIENCE_S, wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    """Of an agent that is dead and has three readings."""
    directory = tmp_path_factory.mktemp("log")
    with opened(directory) as events:
        put(events, range(3))
    with PageServer(directory, 0, FakeClock()) as one:
        thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield one
        one.shutdown()
        thread.join()


def asks(server: PageServer, request: bytes) -> bytes:
    """All that is answered."""
    with socket.create_connection(
        ("127.0.0.1", server.server_port), timeout=PATIENCE_S
    ) as connection:
        connection.sendall(request)
        found = b""
        while chunk := connection.recv(65_536):
            found += chunk
        return found


def request(
    server: PageServer, *, line: str = "GET / HTTP/1.1", host: str | None = None, more: str = ""
) -> bytes:
    host = f"127.0.0.1:{server.server_port}" if host is None else host
    return f"{line}\r\nHost: {host}\r\n{more}\r\n".encode("latin-1")


def status(answer: bytes) -> int:
    return int(answer.split()[1])


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("127.0.0.1:{port}", 200),
        ("localhost:{port}", 200),
        ("127.0.0.1", 421),
        ("localhost:1", 421),
        ("evil.example:{port}", 421),
        ("127.0.0.1.evil.example:{port}", 421),
        ("user@127.0.0.1:{port}", 421),
        ("[::1]:{port}", 421),
        ("", 421),
    ],
)
def test_only_who_calls_this_machine_by_its_name_is_answered(
    server: PageServer, host: str, code: int
) -> None:
    """A page of somebody else's, whose name leads here, would read it otherwise."""
    answer = asks(server, request(server, host=host.format(port=server.server_port)))
    assert (status(answer), b"speed" in answer) == (code, code == 200)


def test_who_names_no_host_at_all_is_refused(server: PageServer) -> None:
    assert status(asks(server, b"GET / HTTP/1.0\r\n\r\n")) == 421


@pytest.mark.parametrize(("port", "bare"), [(80, True), (8098, False)])
def test_the_port_of_http_goes_without_saying(port: int, bare: bool) -> None:
    names = _names(port)
    assert {f"127.0.0.1:{port}", f"localhost:{port}"} <= names
    assert ("localhost" in names, "127.0.0.1" in names) == (bare, bare)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/", 200),
        ("/?x=1", 200),
        ("/metrics", 200),
        ("/metrics?name=up", 200),
        ("/metrics/", 404),
        ("/../../etc/passwd", 404),
        ("/..%2f..%2fetc/passwd", 404),
        ("/%00", 404),
        ("/<script>alert(1)</script>", 404),
        ("//evil.example/", 404),
        ("*", 404),
        ("metrics", 404),
    ],
)
def test_there_are_two_paths_and_no_files(server: PageServer, path: str, code: int) -> None:
    answer = asks(server, request(server, line=f"GET {path} HTTP/1.1"))
    assert (status(answer), b"root:" in answer, b"<script" in answer) == (code, False, False)


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH", "<script>"]
)
def test_there_is_nothing_to_change(server: PageServer, method: str) -> None:
    answer = asks(
        server, request(server, line=f"{method} / HTTP/1.1", more="Content-Length: 0\r\n")
    )
    assert (status(answer), b"<script" in answer) == (501, False)


@pytest.mark.parametrize(
    ("garbage", "said"),
    [
        pytest.param(b"GET / HTTP/1.1 x\r\n\r\n", b"Bad Request", id="a line of four words"),
        pytest.param(
            b"GET / HTTP/9.9\r\n\r\n",
            b"HTTP Version Not Supported",
            id="a version that there is not",
        ),
        pytest.param(
            b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 101 + b"\r\n",
            b"Request Header Fields Too Large",
            id="a hundred and one headers",
        ),
        pytest.param(
            b"GET / HTTP/1.1\r\na: " + b"x" * 70_000 + b"\r\n\r\n",
            b"Request Header Fields Too Large",
            id="a huge header",
        ),
        pytest.param(
            b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
            b"URI Too Long",  # "Request-URI Too Long" before Python 3.13
            id="a huge path",
        ),
    ],
)
def test_what_is_no_request_is_refused_and_the_next_one_answered(
    server: PageServer, garbage: bytes, said: bytes
) -> None:
    found = b""
    with (
        socket.create_connection(
            ("127.0.0.1", server.server_port), timeout=PATIENCE_S
        ) as connection,
        suppress(ConnectionError),
    ):
        connection.sendall(garbage)
        while chunk := connection.recv(65_536):
            found += chunk
    assert said in found or (not found and len(garbage) > 65_536), (
        "one that sends on after the answer may miss it"
    )
    assert status(asks(server, request(server))) == 200


@pytest.mark.parametrize(
    "garbage",
    [b"\x16\x03\x01\x02\x00\x01", b"\0" * 200, b"\r\n", b"GET\r\n\r\n", b""],
    ids=["TLS", "noughts", "a line", "a word", "nothing"],
)
def test_what_is_no_http_harms_nobody(server: PageServer, garbage: bytes) -> None:
    with (
        socket.create_connection(
            ("127.0.0.1", server.server_port), timeout=PATIENCE_S
        ) as connection,
        suppress(ConnectionError),
    ):
        connection.sendall(garbage)
        with suppress(OSError):  # it has closed already
            connection.shutdown(socket.SHUT_WR)
        while connection.recv(65_536):
            pass
    assert status(asks(server, request(server))) == 200


@pytest.mark.parametrize(
    "line", ["GET / HTTP/1.1", "GET /metrics HTTP/1.1", "GET /no HTTP/1.1", "POST / HTTP/1.1"]
)
def test_every_answer_forbids_what_a_page_could_do(server: PageServer, line: str) -> None:
    head = asks(server, request(server, line=line)).partition(b"\r\n\r\n")[0].decode()
    for wanted in (
        f"Content-Security-Policy: {POLICY}",
        "X-Content-Type-Options: nosniff",
        "Cache-Control: no-store",
        "Connection: close",
    ):
        assert wanted in head.splitlines()
    assert "Python" not in head


def test_a_client_that_drips_is_cut_like_one_that_is_silent(
    server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes in time; the request does not."""
    monkeypatch.setattr(page_server.Handler, "timeout", 0.3)
    with socket.create_connection(
        ("127.0.0.1", server.server_port), timeout=PATIENCE_S
    ) as connection:
        began_s, cut = time.monotonic(), False
        connection.setblocking(False)
        while not cut:
            try:
                connection.send(b"x")
                cut = connection.recv(100) == b""
            except BlockingIOError:
                pass
            except ConnectionError:
                cut = True
            assert time.monotonic() - began_s < PATIENCE_S, "it is never cut"
            time.sleep(0.05)
    monkeypatch.undo()
    assert status(asks(server, request(server))) == 200


def test_who_leaves_before_the_answer_is_no_fault_of_ours(
    server: PageServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            connection = socket.create_connection(
                ("127.0.0.1", server.server_port), timeout=PATIENCE_S
            )
            # A reset.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.sendall(request(server))
            connection.close()
        assert status(asks(server, request(server))) == 200
    assert caplog.records == []


def test_a_fault_of_ours_is_logged_and_the_next_one_is_answered(
    server: PageServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        monkeypatch.setitem(page_server.ANSWERS, "/bug", ("text/plain", lambda *_: {}["bug"]))
        assert asks(server, request(server, line="GET /bug HTTP/1.1")) == b""
        wait_until(lambda: caplog.records, "it is logged")
    assert "KeyError: 'bug'" in caplog.text
    assert status(asks(server, request(server))) == 200


def test_a_port_that_is_taken_is_said(server: PageServer) -> None:
    with pytest.raises(LocalError, match=f"127.0.0.1:{server.server_port}: Address already in use"):
        PageServer(Path(), server.server_port, FakeClock())


def test_an_answer_is_kept_for_a_second_and_no_longer(
    server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    monkeypatch.setitem(
        page_server.ANSWERS, "/made", ("text/plain", lambda *_: str(made.append(1) or len(made)))
    )
    clock = server._clock
    assert isinstance(clock, FakeClock)
    found = []
    for passed_s in (0.0, 0.5, 0.49, 0.01, 1.0):
        clock.advance(passed_s)
        found.append(server.text("/made"))
    assert found == ["1", "1", "1", "2", "3"]


def test_a_wall_clock_that_jumps_changes_nothing_of_that(server: PageServer) -> None:
    clock = server._clock
    assert isinstance(clock, FakeClock)
    for jump_s in (3600, -7200, -1.7e9):
        clock.advance(2)
        clock.jump(jump_s)
        assert "Edgewake" in server.text("/")
        assert "edgewake_agent_up 0" in server.text("/metrics")


def test_the_loopback_alone_is_listened_on(server: PageServer) -> None:
    listening = Path("/proc/net/tcp").read_text().split("\n")
    of_ours = [
        line.split()[1]
        for line in listening
        if f":{server.server_port:04X} " in line and line.split()[3] == "0A"
    ]
    assert of_ours == [f"0100007F:{server.server_port:04X}"]
