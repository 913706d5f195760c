"""The status as people read it: each line from the figures that it stands for; and what the file of
a running agent may hold.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge import status as module
from edgewake.edge.log.config import LaneConfig, LogConfig
from edgewake.edge.log.damage.audit import export
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.keeping.quota import AtQuota
from edgewake.edge.status import STALE_AFTER, STATUS_NAME, _running, read, read_log, table, write
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.protocol.errors import LocalError
from tests.edge.helpers import Sent, opened, put, reading
from tests.services import PATIENCE_S, wait_until

LOG: dict[str, Any] = {
    "epoch": 5, "backlog_readings": 0, "backlog_bytes": 0, "frames": 0, "oldest_unacked_s": None,
    "lost": {}, "streams": {}, "consumers": {},
}  # fmt: skip
SOURCE: dict[str, Any] = {
    "state": "running",
    "error": None,
    "taken": 5,
    "dropped": 1,
    "failures": 0,
    "refused": {},
}
ACTION: dict[str, Any] = {
    "type": "webhook", "stream": "alerts", "error": None, "done": 0, "failed": 0, "expired": 0,
    "unknown": 0, "missed": 0,
}  # fmt: skip


def test_a_stream_that_is_asked_to_wait_says_why() -> None:
    assert line("waits gps", waits={"gps": "field_type: expected a number"}) == (
        "field_type: expected a number"
    )


def line(name: str, **status: Any) -> str:
    """What stands behind a name."""
    rows = table(
        {
            "running": True,
            "pid": 7,
            "device": "car",
            "connection": "streaming",
            "log_state": "good",
            "log": LOG,
        }
        | status
    ).splitlines()
    found = [row.removeprefix(name).strip() for row in rows if row.startswith(name + "  ")]
    assert len(found) == 1, rows
    return found[0]


@pytest.mark.parametrize(
    ("name", "status", "says"),
    [
        ("agent", {}, "running, pid 7"),
        ("agent", {"running": False}, "not running"),
        ("device", {}, "car"),
        ("connection", {}, "streaming"),
        ("connection", {"running": False}, "-"),
        ("log", {}, "good"),
        ("log", {"running": False}, "-"),
        ("epoch", {}, "5"),
        (
            "backlog",
            {"log": LOG | {"backlog_readings": 7, "backlog_bytes": 1536, "frames": 2}},
            "7 readings, 1.5 KiB, 2 frames formed",
        ),
        ("oldest", {}, "-"),
        ("oldest", {"log": LOG | {"oldest_unacked_s": 0.0}}, "0.0 s"),
        ("oldest", {"log": LOG | {"oldest_unacked_s": 3.14}}, "3.1 s"),
        ("lost", {}, "0"),
        ("lost", {"log": LOG | {"lost": {"quota": 3, "age": 1}}}, "3 quota, 1 age"),
        (
            "clock",
            {"log": LOG | {"unset_clock_readings": 4}},
            "4 readings were sent with times from before it was set",
        ),
        (
            "stream gps",
            {"log": LOG | {"streams": {"gps": {"accepted": 9, "waiting": 2}}}},
            "9 accepted, 2 waiting",
        ),
        (
            "consumer chain",
            {"log": LOG | {"consumers": {"chain": {"behind": 3, "missed": 1}}}},
            "3 behind, 1 missed",
        ),
        ("source 1 x", {"sources": {"1 x": SOURCE}}, "5 taken, 1 dropped, refused 0"),
        (
            "source 1 x",
            {"sources": {"1 x": SOURCE | {"refused": {"json": 2, "time": 1}}}},
            "5 taken, 1 dropped, refused 2 json, 1 time",
        ),
        (
            "source 1 x",
            {"sources": {"1 x": SOURCE | {"state": "waiting", "error": "OSError: a"}}},
            "waiting (OSError: a); 5 taken, 1 dropped, refused 0",
        ),
        (
            "source 1 x",
            {"sources": {"1 x": SOURCE | {"state": "ended"}}},
            "ended (what it read has ended); 5 taken, 1 dropped, refused 0",
        ),
        (
            "chain out",
            {"chains": {"out": {"stream": "gps", "in": 9, "out": 3, "remarks": {}}}},
            "9 of gps in, 3 out",
        ),
        (
            "chain out",
            {
                "chains": {
                    "out": {
                        "stream": "gps",
                        "in": 9,
                        "out": 3,
                        "remarks": {"filter": {"null": 2}, "rate": {"late": 1}},
                    }
                }
            },
            "9 of gps in, 3 out, 2 null in filter, 1 late in rate",
        ),
        (
            "absence quiet",
            {"absences": {"quiet": {"stream": "gps", "active": True, "raised": 2}}},
            "gps is silent, 2 raised",
        ),
        (
            "absence quiet",
            {"absences": {"quiet": {"stream": "gps", "active": False, "raised": 0}}},
            "gps speaks, 0 raised",
        ),
        (
            "sketch gps",
            {"sketches": {"gps": {"counted": 9, "late": 1, "missed": 2, "restarts": 3}}},
            "9 readings in sketches, 1 late, 2 missed, 3 restarts",
        ),
        ("action siren", {"actions": {"siren": ACTION}}, "webhook on alerts: nothing yet"),
        (
            "action siren",
            {"actions": {"siren": ACTION | {"done": 3, "unknown": 1, "error": "RemoteError: 500"}}},
            "webhook on alerts: 3 done, 1 unknown (last: RemoteError: 500)",
        ),
    ],
)
def test_each_line_says_what_it_stands_for(name: str, status: dict[str, Any], says: str) -> None:
    assert line(name, **status) == says


def test_a_clock_that_was_always_set_is_not_spoken_of() -> None:
    assert "clock" not in table({"running": False, "log": LOG | {"unset_clock_readings": 0}})


def test_an_agent_that_has_never_said_anything_has_a_status_too(tmp_path: Path) -> None:
    with opened(tmp_path) as events:
        put(events, range(3))
    found = read(tmp_path, now_ms=0)
    assert (found["running"], found["log"]["backlog_readings"]) == (False, 3)
    assert table(found).splitlines()[1].split() == ["device", "?"]


@pytest.mark.parametrize(
    ("age_s", "running"),
    [
        (0, True),
        (STALE_AFTER * 10 - 0.001, True),
        (STALE_AFTER * 10, False),
        (3600, False),
        (-3600, True),
    ],
    ids=[
        "just now",
        "at the end of three intervals",
        "after them",
        "the clock was set forward an hour",
        "set back an hour",
    ],
)
def test_news_are_news_for_three_intervals(tmp_path: Path, age_s: float, running: bool) -> None:
    write(tmp_path, {"written_at": 10_000_000, "pid": os.getpid(), "interval_s": 10})
    assert _running(tmp_path, 10_000_000 + round(1000 * age_s))["running"] is running


@pytest.mark.parametrize(
    ("pid", "running"),
    [(os.getpid(), True), (1, True), (2**22 + 1, False), (0, False), (-1, False)],
    # Its number would be another in each of pytest's own.
    ids=["our own", "of somebody else", "of nobody", "no process", "all processes"],
)
def test_an_agent_runs_while_its_process_does_whoever_owns_it(
    tmp_path: Path, pid: int, running: bool
) -> None:
    write(tmp_path, {"written_at": 0, "pid": pid, "interval_s": 10})
    assert _running(tmp_path, 0)["running"] is running


def test_a_process_of_somebody_else_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_pid: int, _signal: int) -> None:
        raise PermissionError

    write(tmp_path, {"written_at": 0, "pid": 5, "interval_s": 10})
    monkeypatch.setattr(module.os, "kill", refuses)
    assert _running(tmp_path, 0)["running"] is True


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=5), one, max_size=3),
    max_leaves=6,
)


@given(st.binary(max_size=40) | JSON.map(orjson.dumps))
def test_whatever_stands_in_the_file_it_is_a_status_or_none(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    directory = tmp_path_factory.getbasetemp() / "status"
    directory.mkdir(exist_ok=True)
    (directory / STATUS_NAME).write_bytes(content)
    assert _running(directory, 0) == {"running": False}


def test_the_file_is_replaced_in_one_step_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path, {"n": number})
    assert [(path.name, orjson.loads(path.read_bytes())) for path in tmp_path.iterdir()] == [
        (STATUS_NAME, {"n": 2})
    ]


# the log's figures


def test_the_figures_of_a_log_with_frames_on_their_way_readings_that_wait_and_a_consumer(
    tmp_path: Path,
) -> None:
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:
        events.open_consumer("late", ["speed"])
        put(events, range(25))
        put(events, range(5), stream="other")
        events.start_sending()
        sent.until(3)
    found = read_log(tmp_path, now_ms=0)
    assert found["backlog_readings"] == 30
    assert {name: (of["accepted"], of["waiting"]) for name, of in found["streams"].items()} == {
        "other": (5, 5),
        "speed": (25, 25),
    }
    assert list(found["streams"]) == ["other", "speed"], "by name"
    assert found["consumers"]["late"] == {"behind": 25, "missed": 0}
    assert found["oldest_unacked_s"] == 0.0, "no age below nought, whatever the clock says"
    assert found["lost"] == {}


@pytest.mark.parametrize("policy", [AtQuota.DROP_OLDEST, AtQuota.DROP_NEWEST, AtQuota.THIN_OUT])
def test_what_was_given_up_is_lost_and_waits_no_more(tmp_path: Path, policy: AtQuota) -> None:
    """Before its gap is in a frame, while that is on its way, and when the cloud was told."""
    config = LogConfig(
        linger_ms=0,
        linger_bulk_ms=0,
        reserve_bytes=0,
        bulk=LaneConfig(quota_bytes=1 << 16, at_quota=policy),
    )
    uplink = UplinkConfig(frame_readings_max=10, inflight_frames_max=5)
    sent = Sent()

    def waiting() -> int:
        """As many as are in the log, and as the running agent says."""
        found, here = read_log(tmp_path, now_ms=0), sum(1 for _ in export(tmp_path, None))
        assert (found["backlog_readings"], found["streams"]["speed"]["waiting"]) == (here, here)
        assert events.status().waiting_readings == here
        return here

    with opened(
        tmp_path, sent=sent, config=config, uplink=uplink, lanes={"speed": Lane.BULK}
    ) as events:
        log = events.stream("speed")
        for n in range(120):
            assert log.wait_accepted(log.append(reading(n, text="x" * 1000)), timeout_s=PATIENCE_S)
        lost = events.status().lost["quota"]
        assert lost > 40
        assert waiting() == 120 - lost
        events.start_sending()
        sent.until(2)
        events.stop_sending()
        assert waiting() == 120 - lost
        for out in tuple(sent):
            events.free(out.key)
        freed = sum(out.count for out in sent if out.gap is None)
        wait_until(lambda: events.status().waiting_readings == 120 - lost - freed, "they are freed")
        assert waiting() == 120 - lost - freed


@pytest.mark.parametrize("passed_s", [0.0, 90.0])
def test_the_oldest_is_as_old_as_the_first_that_waits(tmp_path: Path, passed_s: float) -> None:
    with opened(tmp_path) as events:
        put(events, range(2))
    at = read_log(tmp_path, now_ms=10**13)
    accepted_ms = 10**13 - round(at["oldest_unacked_s"] * 1000)
    assert read_log(tmp_path, now_ms=accepted_ms + round(passed_s * 1000))[
        "oldest_unacked_s"
    ] == pytest.approx(passed_s)


def test_a_folder_without_a_log_says_so(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="no event log yet"):
        read(tmp_path, now_ms=0)


def test_the_table_says_what_became_of_readings_that_are_never_logged() -> None:
    said = line("one_way", uplink={"one_way_sent": 1_000, "one_way_dropped": 2_000})
    assert said == "1000 sent, 2000 dropped since the start"
    assert line(
        "source 1 http_intake s", sources={"1 http_intake s": SOURCE | {"turned_away": 7}}
    ).endswith("7 turned away (their sender has them)")
