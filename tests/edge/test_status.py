"""What the log's figures cost, and that they are right."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

import pytest

from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.mode import LogMode
from edgewake.edge.log.tables.schema import LOG_NAME
from edgewake.edge.status import STATUS_NAME, _figures, read, read_log, table, write
from tests.edge.helpers import Sent, opened, put, reading
from tests.services import PATIENCE_S, wait_until

ROW_BYTES = 64


def summed(directory: Path) -> tuple[int, int]:
    """(backlog, retained) bytes, row by row."""
    with contextlib.closing(sqlite3.connect(directory / LOG_NAME)) as db:
        batches = db.execute("SELECT stream, first, count, length(body) FROM batches").fetchall()
        framed = dict(db.execute("SELECT id, framed FROM streams"))
        frames = db.execute(
            "SELECT stream, first, first + count - 1, coalesce(length(payload), 0) FROM frames"
        ).fetchall()
    backlog = sum(copy for *_, copy in frames)
    retained = 0
    for stream, first, count, size in batches:
        is_in_frame = any(
            of == stream and begin <= first and first + count - 1 <= end
            for of, begin, end, _ in frames
        )
        if first > framed[stream] or is_in_frame:
            backlog += size + ROW_BYTES
        else:
            retained += size + ROW_BYTES
    return backlog, retained


def said(directory: Path) -> tuple[int, int]:
    found = read_log(directory, now_ms=0)
    return found["backlog_bytes"], found["retained_bytes"]


@pytest.mark.parametrize("mode", [LogMode.HML, LogMode.RBML_SBML])
def test_the_bytes_that_are_counted_are_those_that_are_there(tmp_path: Path, mode: LogMode) -> None:
    """While readings come, wait in frames, go, are kept for a consumer, are given up; and after a
    start.
    """
    sent = Sent()
    config = LogConfig(linger_ms=0, reserve_bytes=0, mode=mode)
    with opened(tmp_path, sent=sent, config=config) as events:
        events.open_consumer("late", ["speed"])
        put(events, range(50))
        assert said(tmp_path) == summed(tmp_path) != (0, 0)
        events.start_sending()
        sent.until(3)
        events.free(sent[0].key)
        wait_until(lambda: events.status().backlog_readings == 40, "one is freed")
        assert said(tmp_path) == summed(tmp_path)
        assert said(tmp_path)[1] > 0
    with opened(tmp_path, config=config):
        assert said(tmp_path) == summed(tmp_path)


def test_asking_costs_the_same_however_much_waits(tmp_path: Path) -> None:
    """Counted in steps of SQLite's machine."""
    steps = []
    with opened(tmp_path) as events:
        log = events.stream("speed")
        for last in (100, 3_000):
            while log.accepted_through < last:
                assert log.wait_accepted(
                    log.append_all([reading(n) for n in range(10)]), timeout_s=PATIENCE_S
                )
            with contextlib.closing(sqlite3.connect(tmp_path / LOG_NAME)) as db:
                done = [0]
                db.set_progress_handler(lambda done=done: done.append(1) or 0, 1)
                _figures(db, 0)
                steps.append(len(done))
    assert steps[1] == steps[0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "{}",
        '{"written_at": "now", "pid": 1, "interval_s": 1}',
        '{"written_at": 1, "pid": "x", "interval_s": 1}',
    ]
    + [
        f'{{"written_at": 1, "pid": {pid}, "interval_s": 10}}'
        for pid in ("-1", "0", "1e30", "null", "99999999999999")
    ],
)
def test_a_status_that_a_crash_left_half_written_says_that_nothing_runs(
    tmp_path: Path, text: str
) -> None:
    with opened(tmp_path) as events:
        put(events, range(1))
    (tmp_path / STATUS_NAME).write_text(text)
    found = read(tmp_path, now_ms=2)
    assert found["running"] is False
    assert "not running" in table(found)


def test_the_status_of_a_living_process_is_news_for_three_intervals(tmp_path: Path) -> None:
    with opened(tmp_path) as events:
        put(events, range(1))
    write(tmp_path, {"written_at": 1000, "pid": os.getpid(), "interval_s": 10})
    assert [read(tmp_path, now_ms=1000 + 1000 * age_s)["running"] for age_s in (0, 29, 31)] == [
        True,
        True,
        False,
    ]
