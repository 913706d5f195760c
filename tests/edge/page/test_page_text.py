"""What the page and the metrics say of a status, word by word, and that nothing of it is more than
text.
"""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.page.page import POLICY, REFRESH_S, VALUE_CHARS_MAX, VALUES_MAX, render

LOG: dict[str, Any] = {
    "backlog_readings": 0,
    "backlog_bytes": 0,
    "oldest_unacked_s": None,
    "lost": {},
    "streams": {},
}
SOURCE: dict[str, Any] = {
    "state": "running",
    "error": None,
    "taken": 5,
    "dropped": 1,
    "failures": 0,
    "refused": {},
}


class Read(HTMLParser):
    """What a browser sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.cells: dict[str, list[list[str]]] = {}
        self.of_id: dict[str, str] = {}
        self.attributes: set[str] = set()
        self._table = self._id = ""
        self._in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        found = dict(attrs)
        if "id" in found:
            self._id = str(found["id"])
            self.of_id[self._id] = ""
        if tag == "table":
            self._table = self._id
            self.cells[self._table] = []
        elif tag == "tr":
            self.cells[self._table].append([])
        elif tag in ("td", "th"):
            self.cells[self._table][-1].append("")
            self._in_cell = True

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.cells[self._table][-1][-1] += data
        if self._id:
            self.of_id[self._id] += data

    def handle_endtag(self, tag: str) -> None:
        if tag in ("p", "table"):
            self._id = ""
        if tag in ("td", "th"):
            self._in_cell = False


def seen(latest: dict[str, dict[str, Any]] | None = None, **status: Any) -> Read:
    return Read(render({"running": True, "log": LOG} | status, latest or {}))


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ({"running": False}, "The agent does not run."),
        ({"running": False, "connection": "streaming"}, "The agent does not run."),
        (
            {"connection": "streaming", "log_state": "good"},
            "The agent runs; connection: streaming; log: good",
        ),
        (
            {"connection": "waiting", "log_state": "full"},
            "The agent runs; connection: waiting; log: full",
        ),
        ({}, "The agent runs; connection: ?; log: ?"),
    ],
    ids=[
        "stopped",
        "stopped while connected",
        "connected",
        "without a broker",
        "of another version",
    ],
)
def test_the_state_is_the_first_sentence(status: dict[str, Any], says: str) -> None:
    assert seen(**status).of_id["state"].strip() == says


@pytest.mark.parametrize(
    ("connection", "kind"), [("streaming", "good"), ("waiting", "bad"), ("offline", "bad")]
)
def test_only_a_connection_that_streams_is_green(connection: str, kind: str) -> None:
    assert f'<span class="{kind}">{connection}</span>' in render(
        {"running": True, "connection": connection, "log": LOG}, {}
    )


@pytest.mark.parametrize(
    ("log", "says"),
    [
        ({}, "Nothing: the cloud has it all."),
        (
            {"backlog_readings": 1, "backlog_bytes": 1, "oldest_unacked_s": None},
            "1 readings, 0.0 KiB, the oldest for 0 s",
        ),
        (
            {"backlog_readings": 7, "backlog_bytes": 1024, "oldest_unacked_s": 3.4},
            "7 readings, 1.0 KiB, the oldest for 3 s",
        ),
        (
            {"backlog_readings": 7, "backlog_bytes": 1536, "oldest_unacked_s": 86400.0},
            "7 readings, 1.5 KiB, the oldest for 86400 s",
        ),
    ],
    ids=["nothing", "one, nobody knows since when", "seven", "for a day"],
)
def test_what_waits_is_one_sentence(log: dict[str, Any], says: str) -> None:
    assert seen(log=LOG | log).of_id["waits"].strip() == says


@pytest.mark.parametrize(
    ("lost", "says"),
    [
        ({}, "Nothing."),
        ({"quota": 0}, "Nothing."),
        ({"quota": 3, "age": 0, "corrupt": 1}, "3 readings (quota), 1 readings (corrupt)"),
    ],
    ids=["no reasons", "none for a reason", "some for two of three"],
)
def test_what_was_lost_is_said_by_reason(lost: dict[str, int], says: str) -> None:
    assert seen(log=LOG | {"lost": lost}).of_id["lost"].strip() == says


def test_streams_are_told_with_their_last_readings_and_only_those_that_wait_twice() -> None:
    streams = {"gps": {"accepted": 12345, "waiting": 3}, "idle": {"accepted": 0, "waiting": 0}}
    found = seen(
        {"gps": {"t": 1795334400500, "lat": 52.5, "fix": None}}, log=LOG | {"streams": streams}
    )
    assert found.cells["measured"][1:] == [
        ["gps", "12,345", "2026-11-22 08:00:00 UTC: lat = 52.5, fix = None"],
        ["idle", "0", ""],
    ]
    assert found.cells["waiting"][1:] == [["gps", "3", ""]]
    asked = seen(log=LOG | {"streams": streams}, waits={"gps": "field_type: expected a number"})
    assert asked.cells["waiting"][1:] == [["gps", "3", "field_type: expected a number"]]


def test_tables_without_rows_are_left_out() -> None:
    assert seen().cells == {}


@pytest.mark.parametrize(
    ("source", "state", "refused"),
    [
        ({}, "running", "0"),
        ({"error": "OSError: earlier"}, "running", "0"),
        ({"state": "waiting", "error": "OSError: gone"}, "waiting: OSError: gone", "0"),
        ({"state": "ended"}, "ended", "0"),
        ({"refused": {"json": 2, "time": 3}}, "running", "5"),
    ],
    ids=["well", "well again", "failing", "ended", "with refusals"],
)
def test_sources_are_told_with_what_they_fail_of(
    source: dict[str, Any], state: str, refused: str
) -> None:
    found = seen(sources={"1 gps": SOURCE | source})
    assert found.cells["sources"][1:] == [["1 gps", state, "5", "1", refused]]


@pytest.mark.parametrize(("fields", "is_cut"), [(VALUES_MAX, False), (VALUES_MAX + 1, True)])
def test_a_reading_of_many_fields_is_cut(fields: int, is_cut: bool) -> None:
    reading = {"t": 0} | {f"f{n}": n for n in range(fields)}
    shown = seen({"s": reading}, log=LOG | {"streams": {"s": {"accepted": 1, "waiting": 0}}}).cells[
        "measured"
    ][1][2]
    assert shown.startswith("1970-01-01 00:00:00 UTC: f0 = 0, f1 = 1")
    assert (shown.count(" = "), shown.endswith(", …")) == (VALUES_MAX, is_cut)


def test_a_long_text_is_cut() -> None:
    shown = seen(
        {"s": {"a": "x" * 5000}}, log=LOG | {"streams": {"s": {"accepted": 1, "waiting": 0}}}
    ).cells["measured"][1][2]
    assert shown.strip() == "a = " + "x" * VALUE_CHARS_MAX


TEXTS = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("<>&\"'/= "), min_size=1, max_size=20
)


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_no_name_value_or_error_becomes_more_than_text(
    device: str, name: str, value: str, error: str
) -> None:
    status = {
        "running": True, "device": device, "connection": name, "log_state": value,
        "log": LOG | {"streams": {name: {"accepted": 1, "waiting": 1}}, "lost": {value: 1}},
        "sources": {name: SOURCE | {"state": value, "error": error}},
    }  # fmt: skip
    plain = {
        "running": True,
        "log": LOG | {"streams": {"s": {"accepted": 1, "waiting": 1}}, "lost": {"r": 1}},
        "sources": {"1": SOURCE},
    }
    odd, usual = Read(render(status, {name: {value: error, "t": 0}})), Read(render(plain, {}))
    assert (odd.tags, odd.attributes) == (usual.tags, usual.attributes)
    assert not odd.attributes & {"onload", "onerror", "href", "src"}


def test_the_policy_allows_our_style_and_nothing_else() -> None:
    text = render({"running": True, "log": LOG}, {})
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert "default-src 'none'" in POLICY
    assert f"style-src 'sha256-{digest}'" in POLICY
    assert "script" not in POLICY
    assert f'<meta http-equiv="refresh" content="{REFRESH_S}">' in text


# metrics
