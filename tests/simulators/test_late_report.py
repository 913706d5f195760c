"""What `edgewake replay` says of readings that came late: how many, of which query, and how they
are counted in.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from edgewake.simulators.late_report import LOOKS, LateReport, Look, asker, lines, look_of


def query(
    name: str, late: int, *, at: int = 1, lag: int = 0, stream: str = "s", state: str = "running"
) -> dict[str, Any]:
    return {
        "name": name,
        "late": late,
        "lag": lag,
        "updated_at": at,
        "streams": [stream],
        "state": state,
    }


class Asked:
    """Answers, one after the other; the last one from then on."""

    def __init__(self, *answers: list[Mapping[str, Any]] | None) -> None:
        self.answers = list(answers)
        self.slept = 0

    def __call__(self) -> list[Mapping[str, Any]] | None:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def sleep(self, _: float) -> None:
        self.slept += 1

    def said(self) -> list[str]:
        report = LateReport("s", self, self.sleep)
        report.begin()
        return report.end()


def test_only_what_came_late_meanwhile_counts_and_it_says_how_to_put_it_right() -> None:
    asked = Asked(
        [query("a", 5), query("b", 0)],
        [query("a", 5), query("b", 0)],
        [query("a", 5, at=2, lag=7), query("b", 0, at=2)],
        [query("a", 17, at=3), query("b", 0, at=2)],
    )
    none, first, advice = asked.said()
    assert none == "late: none, for b"
    assert first.startswith("late: 12 readings came when their windows of a were closed already")
    assert "`edgewake query repair a`" in first
    assert "--sort" in advice
    assert asked.slept == 2 + LOOKS, "it waits until everything is computed and nothing more came"


def test_where_none_came_late_it_says_so_and_where_nobody_asks_nothing() -> None:
    others = [query("b", 0, state="paused"), query("c", 1, stream="other")]
    before: list[Mapping[str, Any]] = [query("a", 5), *others]
    after: list[Mapping[str, Any]] = [query("a", 5, at=2), *others]
    assert Asked(before, before, after).said() == ["late: none, for a"]
    assert Asked([]).said() == []
    assert Asked(None).said() == []
    assert Asked([query("a", 5)], None).said() == []
    asked = Asked(before, before, None, after)
    assert asked.said() == ["late: none, for a"], "one answer that fails is none"


def test_what_is_not_computed_in_time_is_not_known() -> None:
    unknown = "late: not known yet of a; `edgewake query list --wide` counts them"
    assert Asked([query("a", 0)], [query("a", 0, at=2, lag=9)]).said() == [unknown]
    assert Asked([query("a", 0)]).said() == [unknown], (
        "it said nothing since all was sent: what it says of its lag is of before"
    )
    found = list(lines(Look({"a": 0}, {}, {}), Look({"a": 3, "new": 2}, {"a": 4}, {}), ["a"]))
    assert [line.partition(":")[0] for line in found][:3] == ["late", "late", "late"]


def test_a_query_that_has_said_nothing_of_its_lag_has_none() -> None:
    assert look_of([query("a", 1) | {"lag": None}], "s") == Look({"a": 1}, {}, {"a": 1})


@pytest.fixture
def api() -> Iterator[str]:
    """An operations API of two pages; the second is not for who has another key."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers["Authorization"] != "Bearer right":
                self.send_error(401)
                return
            is_second = "after=a" in self.path
            page = {
                "items": [query("b" if is_second else "a", 0)],
                "next": None if is_second else "a",
            }
            body = json.dumps(page).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_api_is_asked_page_by_page_and_what_cannot_be_asked_says_nothing(
    api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEWAKE_OPS_URL", api)
    monkeypatch.setenv("EDGEWAKE_OPS_KEY", "right")
    found = asker()()
    assert found is not None
    assert [one["name"] for one in found] == ["a", "b"]
    monkeypatch.setenv("EDGEWAKE_OPS_KEY", "wrong")
    assert asker()() is None
    monkeypatch.setenv("EDGEWAKE_OPS_URL", "file:///etc/passwd")
    assert asker()() is None
