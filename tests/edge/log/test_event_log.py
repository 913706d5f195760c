"""The event log: what is accepted stays, in order, until the cloud has it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from edgewake.edge.log.config import LaneConfig, LogConfig
from edgewake.edge.log.event_log import EventLog, LogBusyError, LogClosedError
from edgewake.edge.log.keeping.quota import AtQuota
from edgewake.edge.log.state import LogState
from edgewake.edge.log.tables.schema import LOG_NAME
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.protocol.clock import FakeClock, SystemClock
from edgewake.protocol.errors import LocalError, RejectReason
from edgewake.protocol.frames.frame import Gap
from tests.edge.helpers import UPLINK, Sent, frame_of, opened, put, reading
from tests.services import PATIENCE_S, wait_until

pytestmark = pytest.mark.usefixtures("short_waits")


def edit(directory: Path, statement: str, *values: object) -> None:
    """Change a closed log behind its back."""
    db = sqlite3.connect(directory / LOG_NAME)
    assert db.execute(statement, values).rowcount > 0, "the fault did not fire"
    db.commit()
    db.close()


def test_readings_become_numbered_frames_without_holes(tmp_path: Path) -> None:
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:
        put(events, range(1, 26))
        events.start_sending()
        frames = sent.until(3)
    assert [(f.frame, f.seq, len(f.t)) for f in frames] == [(1, 1, 10), (2, 11, 10), (3, 21, 5)]
    assert sent.ns() == list(range(1, 26))


def test_unacknowledged_frames_are_sent_again_with_the_same_bytes_after_a_restart(
    tmp_path: Path,
) -> None:
    first, second = Sent(), Sent()
    with opened(tmp_path, sent=first) as events:
        put(events, range(1, 16))
        events.start_sending()
        first.until(2)
        events.free(first[0].key)
    with opened(tmp_path, sent=second) as events:
        put(events, range(16, 20))
        events.start_sending()
        second.until(2)
    assert second[0] == first[1]
    assert frame_of(second[1]).frame == 3


def test_nothing_is_framed_beyond_the_window(tmp_path: Path) -> None:
    sent = Sent()
    with opened(
        tmp_path, sent=sent, uplink=UplinkConfig(frame_readings_max=10, inflight_frames_max=2)
    ) as events:
        put(events, range(1, 101))
        events.start_sending()
        sent.until(2)
        assert events.status().backlog_readings == 100
        assert len(sent) == 2
        events.free(sent[0].key)
        sent.until(3)
    assert sent.ns() == list(range(1, 31))


def test_a_paused_stream_leaves_the_whole_window_to_the_others(tmp_path: Path) -> None:
    sent = Sent()
    with opened(
        tmp_path, sent=sent, uplink=UplinkConfig(frame_readings_max=10, inflight_frames_max=2)
    ) as events:
        put(events, range(1, 101), stream="waits")
        events.start_sending()
        sent.until(2)
        events.pause(frozenset({"waits"}))
        put(events, range(1, 21), stream="flows")
        sent.until(4)
        assert [out.key.stream for out in sent[2:]] == ["flows", "flows"]
        events.pause(frozenset())
        for out in list(sent):
            events.free(out.key)
        sent.until(6)
        assert {out.key.stream for out in sent[4:]} == {"waits"}


def test_streams_take_turns_so_that_a_backlog_blinds_nobody(tmp_path: Path) -> None:
    sent = Sent()
    with opened(
        tmp_path, sent=sent, uplink=UplinkConfig(frame_readings_max=10, inflight_frames_max=4)
    ) as events:
        put(events, range(1, 1001), stream="bulk")
        put(events, range(1, 6), stream="alarm")
        events.start_sending()
        sent.until(4)
    assert {out.key.stream for out in sent[:2]} == {"bulk", "alarm"}


def test_readings_of_another_type_get_a_frame_of_their_own(tmp_path: Path) -> None:
    """The bridge refuses a frame whose column mixes types: one bad reading must not take the others
    with it.
    """
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:
        log = events.stream("speed")
        log.append_all([(1, {"v": 1.5}), (2, {"v": None}), (3, {"v": "fast"}), (4, {"v": 2})])
        assert log.wait_accepted(4, timeout_s=PATIENCE_S)
        events.start_sending()
        wait_until(lambda: events.all_framed, "framed")
        wait_until(lambda: sum(out.count for out in sent) == 4, "all sent")
    columns = [frame_of(out).fields["v"] for out in sent]
    assert ["fast"] in columns
    assert [value for column in columns for value in column] == [1.5, None, "fast", 2]


def test_a_full_queue_refuses_and_accepts_again_after_the_commit(tmp_path: Path) -> None:
    go = threading.Event()

    def wait(place: str) -> None:
        if place == "received":
            go.wait(2 * PATIENCE_S)

    with opened(
        tmp_path,
        config=LogConfig(linger_ms=0, queue_readings_max=5, reserve_bytes=0),
        failpoint=wait,
    ) as events:
        log = events.stream("speed")
        log.append(reading(0))
        wait_until(lambda: log.waiting == 1 and not log._queue.pending, "the writer took it")
        for n in range(1, 6):
            log.append(reading(n))
        with pytest.raises(LogBusyError):
            log.append(reading(6))
        go.set()
        assert log.wait_for_room(timeout_s=PATIENCE_S)
        assert log.wait_accepted(log.append(reading(6)), timeout_s=PATIENCE_S)


def test_a_closed_log_takes_nothing_and_has_written_what_it_took(tmp_path: Path) -> None:
    with opened(tmp_path) as events:
        log = events.stream("speed")
        ticket = log.append_all(reading(n) for n in range(500))
        events.close()
        assert log.accepted_through == ticket
        with pytest.raises(LogClosedError):
            log.append(reading())


def test_two_agents_cannot_share_a_directory(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(LocalError, match="another agent"), opened(tmp_path):
        pass


async def test_acceptance_can_be_awaited(tmp_path: Path) -> None:
    events = EventLog(
        tmp_path,
        LogConfig(reserve_bytes=0),
        UplinkConfig(),
        clock=SystemClock(),
        rng=random.Random(1),
    )
    log = events.stream("speed")
    await asyncio.wait_for(log.accepted(log.append(reading())), 10)
    assert events.status().backlog_readings == 1
    await asyncio.to_thread(events.close)


def test_synchronous_is_full_and_the_log_is_private(tmp_path: Path) -> None:
    with opened(tmp_path) as events:
        put(events, range(3))
        assert (
            events._writer.ask(
                lambda store: store._db.execute("PRAGMA synchronous").fetchone()[0]
            ).result()
            == 2
        )


def test_no_file_of_the_log_is_for_others_whatever_the_directory_and_the_umask_allow(
    tmp_path: Path,
) -> None:
    """The write-ahead log holds readings too."""
    tmp_path.chmod(0o755)
    before = os.umask(0o022)
    try:
        with opened(tmp_path, config=LogConfig(linger_ms=0)) as events:
            put(events, range(3))
            modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert {LOG_NAME, f"{LOG_NAME}-wal", f"{LOG_NAME}-shm", "epoch", "reserve"} <= modes.keys()
    assert set(modes.values()) == {0o600}


async def test_a_writer_that_waits_for_its_disk_does_not_stop_the_loop(tmp_path: Path) -> None:
    stuck, entered = threading.Event(), threading.Event()

    def wait(place: str) -> None:
        if place == "inserted":
            entered.set()
            stuck.wait(2 * PATIENCE_S)

    with opened(tmp_path) as events:
        log = events.stream("speed")
        assert log.wait_accepted(
            log.append_all([reading()], position=("tail", "5")), timeout_s=PATIENCE_S
        )
    events = EventLog(
        tmp_path,
        LogConfig(linger_ms=0, reserve_bytes=0),
        UPLINK,
        clock=SystemClock(),
        rng=random.Random(1),
        failpoint=wait,
    )
    try:
        events.stream("speed").append(reading())
        await asyncio.to_thread(entered.wait, 10)
        asked = asyncio.create_task(events.ask_status())
        assert (events.position("tail"), events.status_at_open.backlog_readings) == ("5", 1)
        await asyncio.sleep(0)
        assert not asked.done(), "the writer is not stuck"
        stuck.set()
        assert (await asyncio.wait_for(asked, 10)).backlog_readings == 2
    finally:
        stuck.set()
        await asyncio.to_thread(events.close)


# rejected, quota, damage


def test_a_refused_frame_is_replaced_by_a_gap_of_its_number(tmp_path: Path) -> None:
    """Or the cloud would wait for this number for ever."""
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:
        put(events, range(1, 8))
        events.start_sending()
        sent.until(1)
        events.free(sent[0].key, RejectReason.FIELD_TYPE)
        put(events, range(8, 9))
        sent.until(3)
        gap = next(frame_of(out) for out in sent if out.gap)
        assert events.status().lost == {"rejected": 7}
    assert (gap.frame, gap.first_frame, gap.seq, gap.gap) == (1, 1, 1, Gap("rejected", 7))


def test_at_the_quota_the_oldest_go_and_the_cloud_is_told_how_many(tmp_path: Path) -> None:
    sent = Sent()
    config = LogConfig(linger_ms=0, quota_bytes=1 << 20, reserve_bytes=0)
    with opened(
        tmp_path, sent=sent, config=config, uplink=UplinkConfig(frame_readings_max=100)
    ) as events:
        for at in range(0, 60_000, 2_000):
            put(events, range(at, at + 2_000))
        status = events.status()
        assert status.stored_bytes <= 1 << 20
        events.start_sending()
        wait_until(
            lambda: sum(out.count for out in sent) == 60_000 or sent.acknowledge(events), "drained"
        )
    frames = [frame_of(out) for out in sent]
    assert frames[0].gap == Gap("quota", status.lost_readings)
    assert sent.ns() == list(range(status.lost_readings, 60_000))
    assert [f.frame for f in frames] == list(range(1, len(frames) + 1))


STOPPING = LaneConfig(at_quota=AtQuota.STOP_SOURCE)


def test_at_the_quota_the_log_can_refuse_instead(tmp_path: Path) -> None:
    config = LogConfig(
        linger_ms=0, quota_bytes=1 << 20, reserve_bytes=0, normal=STOPPING, queue_readings_max=1_000
    )
    sent = Sent()
    with opened(
        tmp_path, sent=sent, config=config, uplink=UplinkConfig(frame_readings_max=100)
    ) as events:
        log = events.stream("speed")
        kept = 0
        while log.wait_for_room(timeout_s=3):
            with contextlib.suppress(LogBusyError):  # the lane may have become full since
                kept += bool(log.append(reading(kept)))
        with pytest.raises(LogBusyError):
            log.append(reading(kept))
        events.start_sending()
        wait_until(
            lambda: sum(out.count for out in sent) >= kept or sent.acknowledge(events), "drained"
        )
        assert events.status().lost == {}
    assert sent.ns() == list(range(kept))


def test_the_file_shrinks_again_after_a_backlog(tmp_path: Path) -> None:
    sent, wide = Sent(), "x" * 4_000
    size = lambda: (tmp_path / LOG_NAME).stat().st_size  # noqa: E731
    with opened(
        tmp_path,
        sent=sent,
        config=LogConfig(linger_ms=0, reserve_bytes=0),
        uplink=UplinkConfig(frame_readings_max=100),
    ) as events:
        log = events.stream("speed")
        for n in range(10_000):
            assert log.wait_for_room(timeout_s=PATIENCE_S)
            log.append(reading(n, wide=f"{n}{wide}"))
        wait_until(lambda: size() > 30 << 20, "a backlog on the disk")
        events.start_sending()
        wait_until(
            lambda: sum(out.count for out in sent) == 10_000 or sent.acknowledge(events), "drained"
        )
        sent.acknowledge(events)
        wait_until(lambda: size() < 25 << 20, "the space is given back")


def test_a_damaged_batch_becomes_a_gap_with_its_exact_count(tmp_path: Path) -> None:
    sent = Sent()
    with opened(tmp_path) as events:
        put(events, range(1, 31))
    edit(
        tmp_path,
        "UPDATE batches SET body = CAST(replace(body, '1790000000015', '1790000000016') AS BLOB) "
        "WHERE first = 11",
    )
    with opened(tmp_path, sent=sent) as events:
        events.start_sending()
        frames = sent.until(3)
        assert events.status().lost == {"corrupt": 10}
    assert [f.gap for f in frames] == [None, Gap("corrupt", 10), None]
    assert [f.seq for f in frames] == [1, 11, 21]


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM batches WHERE first = 11",
        "UPDATE batches SET first = 13 WHERE first = 11",
        "UPDATE batches SET count = 9 WHERE first = 11",
    ],
)
def test_a_batch_that_vanished_or_moved_is_counted_too(tmp_path: Path, change: str) -> None:
    sent = Sent()
    with opened(tmp_path) as events:
        put(events, range(1, 31))
    edit(tmp_path, change)
    with opened(tmp_path, sent=sent) as events:
        events.start_sending()
        frames = sent.until(3)
    assert [f.gap for f in frames] == [None, Gap("corrupt", 10), None]


def test_a_damaged_frame_becomes_a_gap_of_its_number(tmp_path: Path) -> None:
    first, sent = Sent(), Sent()
    with opened(tmp_path, sent=first) as events:
        put(events, range(1, 26))
        events.start_sending()
        first.until(3)
    edit(tmp_path, "UPDATE batches SET body = CAST(body || ' ' AS BLOB) WHERE first = 11")
    with opened(tmp_path, sent=sent) as events:
        events.start_sending()
        frames = sent.until(3)
    assert [(f.frame, f.gap) for f in frames] == [(1, None), (2, Gap("corrupt", 10)), (3, None)]


# epochs


def epoch_of(directory: Path, seed: int = 1) -> tuple[int, str | None]:
    with opened(directory, seed=seed) as events:
        return events.epoch, events.epoch_began


def test_the_epoch_stays_over_restarts(tmp_path: Path) -> None:
    epoch, why = epoch_of(tmp_path)
    assert why == "created"
    assert epoch_of(tmp_path) == (epoch, None)


def test_a_copied_log_begins_an_epoch_of_its_own(tmp_path: Path) -> None:
    epoch, _ = epoch_of(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    copied, why = epoch_of(tmp_path / "b")
    assert (copied > epoch, why) == (True, "copied")
    assert epoch_of(tmp_path / "a") == (epoch, None)


def test_a_log_restored_in_place_is_noticed_by_its_mark(tmp_path: Path) -> None:
    """The same inode with older bytes: numbers that were sent must not be used again."""
    sent = Sent()
    with opened(tmp_path / "a") as events:
        put(events, range(1, 11))
        epoch = events.epoch
    backup = (tmp_path / "a" / LOG_NAME).read_bytes()
    with opened(tmp_path / "a") as events:
        put(events, range(11, 21))
    (tmp_path / "a" / LOG_NAME).write_bytes(backup)
    with opened(tmp_path / "a", sent=sent) as events:
        assert (events.epoch_began, events.epoch > epoch) == ("restored", True)
        put(events, range(21, 24))
        events.start_sending()
        sent.until(1)
        sent.acknowledge(events)
        frames = sent.until(2)
    assert [(frame.epoch, frame.frame, frame.seq) for frame in frames] == [
        (epoch, 1, 1),
        (events.epoch, 1, 1),
    ]
    assert sent.ns() == [*range(1, 11), 21, 22, 23]


def test_no_frame_of_a_later_epoch_is_sent_before_the_earlier_ones_are_acknowledged(
    tmp_path: Path,
) -> None:
    """Of each stream the cloud remembers few epochs, and passes frames on in the order of their
    epochs as they come.
    """
    sent = Sent()
    for start in range(5):
        with opened(tmp_path, boot=str(start)) as events:
            put(events, range(start * 15, start * 15 + 15))
    with opened(tmp_path, sent=sent, boot="last") as events:
        events.start_sending()
        for count in (2, 4, 6, 8, 10):
            sent.until(count)
            wait_until(
                lambda: events._writer.ask(lambda store: not store.can_frame()).result(),
                "no more may be sent",
            )
            assert len(sent) == count
            sent.acknowledge(events)
        wait_until(lambda: events.status().backlog_readings == 0, "all is acknowledged")
    assert sent.ns() == list(range(75))
    assert len({out.key.epoch for out in sent}) == 5


def test_a_lost_log_begins_a_higher_epoch_even_when_the_clock_fell_back(tmp_path: Path) -> None:
    epoch, _ = epoch_of(tmp_path)
    (tmp_path / LOG_NAME).unlink()
    with opened(tmp_path, clock=FakeClock(1_000)) as events:
        assert (events.epoch_began, events.epoch > epoch) == ("lost", True)


def test_frames_formed_before_a_new_epoch_keep_their_numbers_and_the_rest_is_numbered_anew(
    tmp_path: Path,
) -> None:
    sent = Sent()
    with opened(
        tmp_path / "a", sent=sent, uplink=UplinkConfig(frame_readings_max=10, inflight_frames_max=1)
    ) as events:
        put(events, range(1, 31))
        events.start_sending()
        sent.until(1)
        old = events.epoch
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    again = Sent()
    with opened(tmp_path / "b", sent=again) as events:
        events.start_sending()
        wait_until(lambda: again.acknowledge(events) or len(again) == 3, "all are sent")
        frames = again.until(3)
        new = events.epoch
    assert again[0] == sent[0]
    assert [(f.epoch, f.frame, f.seq) for f in frames] == [(old, 1, 1), (new, 1, 1), (new, 2, 11)]
    assert again.ns() == list(range(1, 31))


# disks that fail


def test_a_full_disk_acknowledges_nothing_and_goes_on_when_space_is_freed(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", disk], capture_output=True
    ).returncode:
        pytest.skip("mounting a small file system is not allowed here")
    try:
        _fill_and_free(disk)
    finally:
        subprocess.run(["umount", disk], check=True)


def _fill_and_free(disk: Path) -> None:
    sent = Sent()
    ballast = disk / "ballast"
    ballast.write_bytes(b"x" * (4 << 20))
    with opened(
        disk / "log",
        sent=sent,
        config=LogConfig(linger_ms=0, reserve_bytes=4 << 20),
        uplink=UplinkConfig(),
    ) as events:
        log = events.stream("speed")
        ticket = 0
        while events.state is not LogState.FULL:
            try:
                ticket = log.append(reading(ticket))
            except LogBusyError:
                log.wait_for_room(timeout_s=0.2)
        stored = log.accepted_through
        assert 0 < stored < ticket
        ballast.unlink()
        assert log.wait_accepted(ticket, timeout_s=PATIENCE_S), "accepts again"
        events.start_sending()
        wait_until(
            lambda: sum(out.count for out in sent) >= ticket or sent.acknowledge(events), "drained"
        )
    assert sent.ns() == list(range(ticket))


@pytest.mark.parametrize("place", ["inserted", "committed"])
def test_an_io_error_reopens_the_log_and_the_commit_number_decides(
    tmp_path: Path, place: str
) -> None:
    """Before COMMIT the turn is done again; after it the turn is not done twice."""
    failures = iter([True])

    def fail(at: str) -> None:
        if at == place and at != "received" and armed and next(failures, False):
            raise OSError(errno.EIO, "Input/output error")

    sent, armed = Sent(), list[bool]()
    with opened(tmp_path, sent=sent, failpoint=fail) as events:
        put(events, range(1, 6))
        armed.append(True)
        put(events, range(6, 11))
        assert next(failures, None) is None, "the fault did not fire"
        put(events, range(11, 16))
        events.start_sending()
        wait_until(lambda: sum(out.count for out in sent) == 15, "sent")
    assert sent.ns() == list(range(1, 16))


# kill -9


def crash_runner(directory: Path, *options: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.edge.log.crash_runner", directory, *options],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


KILLS, MORE = 100, 300
NOTHING = dict.fromkeys(
    ("unsaid", "not_derived", "miscounted", "lost", "twice", "disorder", "holes", "changed"), 0
)


@pytest.mark.services
@pytest.mark.parametrize("kills", [KILLS, pytest.param(MORE, marks=pytest.mark.long)])
def test_kill_9_at_every_place_loses_and_doubles_nothing(tmp_path: Path, kills: int) -> None:
    """At each named place and at random moments; every one of them is seen to have happened."""
    report = crash_runner(tmp_path, "--kills", str(kills))
    assert report["killed"] == kills
    assert len(report["by_place"]) == 11  # type: ignore[arg-type]
    found = report["violations"]
    assert {name: count for name, count in found.items() if name != "received_lost"} == NOTHING  # type: ignore[attr-defined]


@pytest.mark.long
@pytest.mark.services
def test_control_a_log_that_accepts_before_its_commit_loses(tmp_path: Path) -> None:
    """Or the test above would show nothing."""
    report = crash_runner(tmp_path, "--kills", "40", "--accept-before-commit")
    assert report["violations"]["lost"] > 0  # type: ignore[index]
