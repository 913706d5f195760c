"""What a start reads of a log: the rows' heads, however much stands in them; and that its sums are
those of the rows.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.keeping.rows import LogRows
from edgewake.edge.log.tables.schema import LOG_NAME
from edgewake.edge.status import read_log
from tests.edge.helpers import Sent, frame_of, opened, put, reading
from tests.services import PATIENCE_S, wait_until

TEXT = "x" * 8_000
CONFIG = LogConfig(linger_ms=0, reserve_bytes=0)


def read_bytes() -> int:
    """What this process has read from files so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


def fill(directory: Path) -> None:
    """Three streams of large batches."""
    with opened(directory, config=CONFIG) as events:
        for stream in ("a", "b", "c"):
            log = events.stream(stream)
            assert log.wait_accepted(
                log.append_all(reading(n, text=f"{n}{TEXT}") for n in range(300)),
                timeout_s=PATIENCE_S,
            )


def test_the_sums_of_a_start_read_no_bodies_and_those_of_a_range_read_all(tmp_path: Path) -> None:
    """The second, for each stream, is what a start did before."""
    fill(tmp_path)
    assert (tmp_path / LOG_NAME).stat().st_size > 7_000_000
    with contextlib.closing(sqlite3.connect(tmp_path / LOG_NAME)) as db:
        rows = LogRows(db)
        began = read_bytes()
        sums = rows.sums()
        summed = read_bytes()
        ranges = {stream: rows.batch_bytes(stream, 1, 300) for stream in (1, 2, 3)}
        assert {stream: waiting for stream, (_, waiting) in sums.items()} == ranges
        assert (summed - began < 500_000, read_bytes() - summed > 5_000_000) == (True, True)


@pytest.mark.parametrize("acknowledged", [0, 1, 2])
def test_the_sums_of_a_start_are_those_of_the_rows(tmp_path: Path, acknowledged: int) -> None:
    """Some wait for a frame, some are in one, some are kept for a consumer."""
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:
        events.open_consumer("late", ["speed"])
        put(events, range(45))
        put(events, range(7), stream="other")
        events.start_sending()
        sent.until(5)
        for out in sent[:acknowledged]:
            events.free(out.key)
        left = 52 - sum(len(frame_of(out).t) for out in sent[:acknowledged])
        wait_until(lambda: events.status().backlog_readings <= left, "they are freed")
    with contextlib.closing(sqlite3.connect(tmp_path / LOG_NAME)) as db:
        rows = LogRows(db)
        streams = db.execute(
            "SELECT id, framed, last FROM streams WHERE id IN (SELECT stream FROM batches)"
        ).fetchall()
        expected = {
            one: (rows.batch_bytes(one, 0, framed), rows.batch_bytes(one, framed + 1, last))
            for one, framed, last in streams
        }
        assert rows.sums() == expected
        assert sum(map(sum, expected.values())) > 0
        plan = " ".join(
            row[3]
            for row in db.execute(
                "EXPLAIN QUERY PLAN SELECT stream FROM batches CROSS JOIN streams ON id = +stream "
                "GROUP BY stream"
            )
        )
        assert "TEMP" not in plan, "else every body would be written to a file that sorts them"
    before = read_log(tmp_path, now_ms=0)
    with opened(tmp_path):
        again = read_log(tmp_path, now_ms=0)
    assert (again["backlog_bytes"], again["retained_bytes"]) == (
        before["backlog_bytes"],
        before["retained_bytes"],
    )
