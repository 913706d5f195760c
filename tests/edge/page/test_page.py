"""The agent's page and metrics: what they say, that they escape, and that bad askers harm
nobody.
"""

from __future__ import annotations

import http.client
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from edgewake.edge import status as status_file
from edgewake.edge.log.damage.audit import latest
from edgewake.edge.page import server as page_server
from edgewake.edge.page.metrics import exposition
from edgewake.edge.page.page import render
from edgewake.edge.page.server import REQUESTS_MAX, PageServer
from edgewake.edge.status import VALUES_MAX
from edgewake.protocol.clock import SystemClock
from tests.edge.helpers import Sent, opened, put
from tests.services import PATIENCE_S, wait_until

EVIL = '<script>alert("1")</script>\n\\'
STATUS: dict[str, Any] = {
    "running": True, "age_s": 2.5, "uptime_s": 40.0, "version": EVIL, "device": EVIL,
    "connection": "streaming", "log_state": "good",
    "log": {
        "backlog_readings": 7, "backlog_bytes": 2048, "oldest_unacked_s": 3.5,
        "lost": {EVIL: 2, "quota": 0}, "frames": 1,
        "streams": {"speed": {"accepted": 1234, "waiting": 7}},
    },
    "sources": {
        f"1 {EVIL}": {"state": "waiting", "error": EVIL, "taken": 5, "dropped": 1, "failures": 3,
            "refused": {"json": 4}},
    },
}  # fmt: skip


def test_all_text_is_escaped() -> None:
    found = render(STATUS, {"speed": {"t": 1795334400500, EVIL: EVIL}})
    assert "<script" not in found
    assert "1,234" in found
    assert "2026-11-22 08:00:00 UTC:" in found
    assert "7 readings, 2.0 KiB, the oldest for 4 s" in found


def test_a_dead_agent_without_anything_has_a_page_too() -> None:
    empty = {
        "backlog_readings": 0,
        "backlog_bytes": 0,
        "oldest_unacked_s": None,
        "lost": {},
        "streams": {},
    }
    found = render({"running": False, "log": empty}, {})
    assert "The agent does not run." in found
    assert "Nothing: the cloud has it all." in found


def test_metrics_are_what_prometheus_reads() -> None:
    found = {
        sample.name: (sample.labels, sample.value)
        for each in text_string_to_metric_families(exposition(STATUS))
        for sample in each.samples
    }
    assert found["edgewake_agent_up"] == ({}, 1)
    assert found["edgewake_agent_build_info"] == ({"version": EVIL}, 1)
    assert found["edgewake_agent_uptime_seconds"] == ({}, 42.5)
    assert found["edgewake_agent_accepted_readings_total"] == ({"stream": "speed"}, 1234)
    assert found["edgewake_agent_source_refused_total"] == (
        {"source": f"1 {EVIL}", "reason": "json"},
        4,
    )
    assert found["edgewake_agent_source_up"][1] == 0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PageServer]:
    """Of an agent that is dead and has three readings."""
    with opened(tmp_path) as events:
        put(events, range(3))
    with PageServer(tmp_path, 0, SystemClock()) as one:
        thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield one
        finally:
            one.shutdown()
            thread.join()


def ask(server: PageServer, path: str = "/", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE_S)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_it_serves_the_page_and_the_metrics_to_this_machine_only(server: PageServer) -> None:
    status, text = ask(server)
    assert (status, "<td>speed</td>" in text, "n = 2" in text) == (200, True, True)
    assert "edgewake_agent_backlog_readings 3" in ask(server, "/metrics")[1]
    assert ask(server, "/etc/passwd")[0] == 404
    assert ask(server, Host="evil.example")[0] == 421
    assert server.server_address[0] == "127.0.0.1"


def test_what_is_measured_is_shown_also_where_the_cloud_has_it_all(tmp_path: Path) -> None:
    """The log of an agent that works well is empty."""
    sent, clock = Sent(), SystemClock()
    with opened(tmp_path, sent=sent) as events:
        events.start_sending()
        put(events, range(3))
        put(events, range(7), stream="heat")
        put(events, range(1), stream="ew_inbox")
        wait_until(
            lambda: sent.acknowledge(events) or not latest(tmp_path),
            "the log needs none of them any more",
        )
        said = {
            "running": True,
            "written_at": clock.now_ms(),
            "pid": os.getpid(),
            "interval_s": 3600,
        }
        status_file.write(tmp_path, said | {"latest": status_file.shown(events.latest())})
        with PageServer(tmp_path, 0, clock) as server:
            assert "n = 2" in server.text("/")
            assert "n = 6" in server.text("/")
            assert "n = 0" not in server.text("/"), "what came down is nobody's measurement"
    with opened(tmp_path) as events:
        put(events, range(9))
        with PageServer(tmp_path, 0, clock) as server:
            assert "n = 8" in server.text("/"), "what the log has is newer"


@pytest.mark.parametrize("fields", [VALUES_MAX, VALUES_MAX + 1, VALUES_MAX + 50])
def test_the_status_says_no_more_of_a_reading_than_is_shown(fields: int) -> None:
    reading = 5, {f"f{n}": "x" * 500 for n in range(fields)}
    said = status_file.shown({"speed": reading})["speed"]
    assert len(orjson.dumps(said)) < 100 + 80 * (VALUES_MAX + 1)
    whole = {"t": reading[0], **reading[1]}
    assert render(STATUS, {"speed": said}) == render(STATUS, {"speed": whole})


def test_a_log_that_is_not_there_is_said(tmp_path: Path, server: PageServer) -> None:
    server._directory = tmp_path / "nothing"
    status, text = ask(server)
    assert (status, "no event log yet" in text) == (503, True)


def test_askers_that_say_nothing_are_bounded_and_cut(
    server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_server.Handler, "timeout", 0.5)
    silent = [
        socket.create_connection(("127.0.0.1", server.server_port)) for _ in range(REQUESTS_MAX + 3)
    ]
    for each in silent:
        each.settimeout(PATIENCE_S)
        assert each.recv(100) == b""
        each.close()
    assert ask(server)[0] == 200


def test_many_who_look_read_the_log_once(
    server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    plain = status_file.read
    monkeypatch.setattr(status_file, "read", lambda *a, **k: (read.append(1), plain(*a, **k))[1])
    monkeypatch.setattr(page_server, "KEPT_S", 3600.0)
    for _ in range(5):
        ask(server)
    assert len(read) == 1
