"""Readings that never came to the log are said in gaps, and what waits for a commit has a bound in
bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
import threading
from pathlib import Path
from shutil import copytree

import psutil
import pytest

from edgewake.edge.intake.intake import Intake, LogSink
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.event_log import LogBusyError, StreamLog
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.tables.schema import LOG_NAME
from edgewake.edge.log.writing.queue import Queues
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.frames.frame import Gap
from tests.edge.helpers import Sent, opened, put, reading
from tests.services import PATIENCE_S, wait_until

pytestmark = pytest.mark.usefixtures("short_waits")

QUEUE_BYTES = 8 << 20


def test_a_loss_is_a_gap_at_its_place_with_count_and_reason(tmp_path: Path) -> None:
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:
        log = events.stream("speed")
        put(events, range(1, 6))
        log.lose(3, "queue_full")
        log.lose(4, "queue_full")
        assert events.status().lost == {"queue_full": 7}
        wait_until(lambda: events.status().backlog_readings == 12, "the loss has its place")
        put(events, range(6, 9))
        events.start_sending()
        frames = sent.until(3)
        assert events.status().lost == {"queue_full": 7}
    assert [(frame.seq, frame.gap, len(frame.t)) for frame in frames] == [
        (1, None, 5),
        (6, Gap("queue_full", 7), 0),
        (13, None, 3),
    ]


def test_a_loss_that_was_not_said_yet_is_said_when_the_log_closes(tmp_path: Path) -> None:
    with opened(tmp_path) as events:
        events.stream("speed").lose(5, "refused")
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:
        events.start_sending()
        frames = sent.until(1)
        assert events.status().lost == {"refused": 5}
    assert (frames[0].seq, frames[0].gap) == (1, Gap("refused", 5))


def test_what_a_full_queue_drops_reaches_the_cloud_as_gaps(tmp_path: Path) -> None:
    """Everything is either delivered or in a gap: nothing is known to the device alone."""
    sent, stuck = Sent(), threading.Event()

    def wait(place: str) -> None:
        if place == "received":
            stuck.wait(2 * PATIENCE_S)

    config = LogConfig(linger_ms=0, reserve_bytes=0, queue_readings_max=100)
    with opened(tmp_path, sent=sent, config=config, failpoint=wait) as events:
        intake = Intake("host", LogSink(events.stream("h")), Policy.DROP_NEWEST, FakeClock())

        async def flood() -> None:
            for n in range(2_000):
                await intake.put([reading(n)])

        asyncio.run(flood())
        assert intake.check({"v": float("nan")}) is None
        assert intake.dropped > 1_000, "the fault did not fire"
        stuck.set()
        wait_until(lambda: events.status().lost.get("queue_full") == intake.dropped, "counted")
        events.start_sending()
        wait_until(
            lambda: sum(out.count for out in sent) == 2_001 or sent.acknowledge(events),
            "all is said",
        )
    assert len(sent.ns()) == intake.taken
    said = {out.gap: out.count for out in sent if out.gap}
    assert said == {"queue_full": intake.dropped, "refused": 1}


def test_large_readings_fill_the_queues_bytes_not_the_memory(tmp_path: Path) -> None:
    """A reader that holds the log stops the writer; 28 KB a reading, of which 10,000 would be 280
    MB.
    """
    config = LogConfig(
        linger_ms=0, reserve_bytes=0, wal_bytes_max=4 << 20, queue_bytes_max=QUEUE_BYTES
    )
    with opened(tmp_path, config=config) as events:
        put(events, range(3))
        reader = sqlite3.connect(tmp_path / LOG_NAME, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM batches").fetchone()
        log = events.stream("wide")
        before, count = psutil.Process().memory_info().rss, 0
        with contextlib.suppress(LogBusyError):
            while count < 10_000:
                log.append(
                    reading(count, **{f"w{i}": f"{count:06d}" + "x" * 7_000 for i in range(4)})
                )
                count += 1
            pytest.fail("no bound")
        assert log.waiting * 28_000 <= QUEUE_BYTES
        assert psutil.Process().memory_info().rss - before < 100 << 20
        other = events.stream("small")
        ticket = other.append(reading(1))
        reader.close()
        assert other.wait_accepted(ticket, timeout_s=PATIENCE_S), "another source has room"
        assert log.wait_for_room(timeout_s=PATIENCE_S)


def test_a_flood_leaves_room_for_other_streams_and_gives_it_back() -> None:
    queues = Queues(readings_max=1_000_000, bytes_max=1 << 20)
    flood, calm = queues.of("flood", Lane.NORMAL), queues.of("calm", Lane.NORMAL)
    while queues.has_room(flood):
        queues.add(flood, [reading(1, text="x" * 1_000)])
    assert 0.4 * (1 << 20) < queues.size < 0.6 * (1 << 20)
    assert queues.has_room(calm)
    taken = queues.take()
    assert not queues.has_room(flood), "what is being written is in memory still"
    queues.accepted(taken)
    assert (queues.size, flood.size, queues.has_room(flood)) == (0, 0, True)


def test_what_a_source_has_passed_over_is_said_with_the_place_that_it_has_then(
    tmp_path: Path,
) -> None:
    """A kill right after it costs nothing: behind that place nobody looks for them again."""
    with opened(tmp_path / "log") as events:
        put(events, range(1, 3))
        log = events.stream("speed")
        log.lose(3, "refused")
        ticket = log.append_all([reading(3)], position=("file", "7"), lost={"not_kept": 2})
        assert log.wait_accepted(ticket, timeout_s=PATIENCE_S)
        copytree(tmp_path / "log", tmp_path / "killed")
    sent = Sent()
    with opened(tmp_path / "killed", sent=sent) as events:
        assert events.position("file") == "7"
        assert events.status().lost == {"refused": 3, "not_kept": 2}
        events.start_sending()
        sent.until(3)
    assert [out.gap for out in sent] == [None, "refused", "not_kept"]


def test_a_place_that_moves_without_a_reading_takes_its_losses_along(tmp_path: Path) -> None:
    with opened(tmp_path / "log") as events:
        events.stream("speed").append_all([], position=("file", "7"), lost={"not_kept": 2})
        wait_until(lambda: events.position("file") == "7", "it is durable")
        copytree(tmp_path / "log", tmp_path / "killed")
    with opened(tmp_path / "killed") as events:
        assert events.status().lost == {"not_kept": 2}


@pytest.mark.parametrize("with_reading", [True, False])
async def test_who_waits_until_what_he_left_is_durable_does_not_wait_for_others(
    tmp_path: Path, with_reading: bool
) -> None:
    """While it is written, others leave a place each time; nobody waits until there is none on its
    way.
    """
    logs, places = list[StreamLog](), itertools.count(2)

    def leave(place: str) -> None:
        if place == "received":
            for log in logs:
                n = next(places)
                log.append_all([reading(n)], position=("keys", str(n)))

    with opened(tmp_path, failpoint=leave) as events:
        log = events.stream("speed")
        logs.append(log)
        log.append_all(
            [reading(1)] if with_reading else [], position=("keys", "1"), lost={"refused": 1}
        )
        async with asyncio.timeout(PATIENCE_S):
            await log.durable()
        logs.clear()
        assert events.status().lost == {"refused": 1}
