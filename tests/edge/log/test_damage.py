"""Damage to the log's file costs what stood there: 0 wrong, 0 twice, 0 unsaid, and new readings are
accepted at once.

`make test` takes a sample; `make test-faults` every page, every truncation and 300 flipped bits.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from edgewake.edge.log.damage.pages import Pages, rows
from edgewake.edge.log.damage.salvage import BatchRow, is_damage, take_over
from edgewake.edge.log.tables import gaps
from edgewake.edge.log.tables.codec import checksum
from edgewake.edge.log.tables.schema import LOG_NAME, LogDamagedError, open_for_writing
from tests.edge.helpers import Sent, opened, put, reading
from tests.edge.log.damaging import (
    CONFIG,
    GAP_BITS,
    LATER,
    PAGE,
    READINGS,
    UPLINK,
    Damage,
    FirstLife,
    first_life,
    flip,
    flip_in_gap,
    lay,
    live_on,
    second_life,
    stale_page,
    text_of,
    truncate,
    zero_page,
)
from tests.services import PATIENCE_S, wait_until

pytestmark = pytest.mark.usefixtures("short_waits")

ALL_FAULTS = os.environ.get("EDGEWAKE_FAULTS") == "all"
EXPECTED = set(range(READINGS)) | set(LATER)
GOOD = {"wrong": 0, "twice": 0, "unsaid": 0, "said_of_what_came": 0, "holes": 0}
PAGES = [*range(60), *range(60, 400, 7)]
"""All of the first, which hold what is above the leaves, and some of the others."""
ALL: dict[str, Damage] = (
    {f"zeroed page {n}": zero_page(n) for n in PAGES}
    | {f"wrong page {n}": stale_page(n) for n in PAGES}
    | {f"truncated in page {n}": truncate(n * PAGE + 1234) for n in PAGES}
    | {"empty": truncate(0), "a header only": truncate(100)}
    | {f"flipped bit {n}": flip(n) for n in range(300)}
    | {f"flipped bit {n} of a gap": flip_in_gap(n) for n in range(GAP_BITS)}
)
SAMPLE = ["empty", "a header only"]
SAMPLE += [f"zeroed page {n}" for n in (0, 1, 2, 4, 5, 6, 7, 8, 9, 20, 40)] + [
    f"wrong page {n}" for n in (0, 6, 8, 9, 30)
]
SAMPLE += [f"truncated in page {n}" for n in (0, 3, 8, 30)] + [
    f"flipped bit {n}" for n in (1, 46, 174, 190)
]
GAPS = (
    [name for name in ALL if name.endswith("of a gap")]
    if ALL_FAULTS
    else [f"flipped bit {n} of a gap" for n in (58, 77, 100, 170)]
)
NAMES = list(ALL) if ALL_FAULTS else SAMPLE


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> FirstLife:
    """A log and what its cloud has."""
    return first_life(tmp_path_factory.mktemp("life") / "log")


@pytest.mark.parametrize("name", NAMES)
def test_damage_costs_what_stood_there_and_nothing_unsaid(
    tmp_path: Path, life: FirstLife, name: str
) -> None:
    damaged = ALL[name](life.log)
    if damaged == life.log:
        pytest.skip("the log has no such page") if name not in SAMPLE else pytest.fail(
            "the fault did not fire"
        )
    cloud = second_life(tmp_path / "log", life, damaged)
    assert cloud.verdict(EXPECTED) == GOOD


@pytest.mark.parametrize(
    ("name", "lost_max"),
    [("zeroed page 0", 0), ("zeroed page 1", 0), ("zeroed page 7", 400), ("zeroed page 40", 400)],
)
def test_a_page_costs_at_most_its_own_rows(
    tmp_path: Path, life: FirstLife, name: str, lost_max: int
) -> None:
    """Also the first one, without which SQLite reads nothing, and those above the leaves."""
    cloud = second_life(tmp_path / "log", life, ALL[name](life.log))
    assert cloud.lost(EXPECTED) <= lost_max


@pytest.mark.parametrize("name", GAPS)
def test_a_bit_of_a_gap_costs_no_reading(tmp_path: Path, life: FirstLife, name: str) -> None:
    """A gap that says too much would take what is there."""
    cloud = second_life(tmp_path / "log", life, ALL[name](life.log))
    assert (cloud.verdict(EXPECTED), cloud.lost(EXPECTED)) == (GOOD, 0)


def test_control_a_gap_without_its_checksum_costs_readings(
    tmp_path: Path, life: FirstLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaps, "is_sound", lambda *_: True)
    cloud = second_life(tmp_path / "log", life, flip_in_gap(77)(life.log))
    assert cloud.lost(EXPECTED) > 0


def test_without_damage_nothing_is_lost(tmp_path: Path, life: FirstLife) -> None:
    cloud = second_life(tmp_path / "log", life, life.log)
    assert (cloud.verdict(EXPECTED), cloud.lost(EXPECTED)) == (GOOD, 0)


def test_without_what_the_sidecar_knows_losses_are_not_said(
    tmp_path: Path, life: FirstLife
) -> None:
    """The control: the judgement sees what nobody says."""
    known = dict(life.files)
    del known["epoch"]
    cloud = second_life(tmp_path / "log", FirstLife(known, life.cloud), truncate(0)(life.log))
    assert cloud.verdict(EXPECTED)["unsaid"] > 0


def test_a_lost_log_says_what_was_in_it(tmp_path: Path, life: FirstLife) -> None:
    known = dict(life.files)
    del known[LOG_NAME]
    cloud = second_life(tmp_path / "log", FirstLife(known, life.cloud), b"")
    assert cloud.verdict(EXPECTED) == GOOD
    assert cloud.lost(EXPECTED) > 0


@pytest.mark.services
def test_kill_9_while_a_damaged_log_is_saved_loses_and_doubles_nothing_more(
    tmp_path: Path, life: FirstLife
) -> None:
    """At each place on the way, one after the other: every start goes on where the one before
    died.
    """
    lay(tmp_path / "log", life, ALL["zeroed page 0"](life.log))
    command = [sys.executable, "-m", "tests.edge.log.salvage_crash", tmp_path / "log"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    assert int(done.stdout) >= 5, "the fault did not fire"
    cloud = live_on(tmp_path / "log", life)
    assert (cloud.verdict(EXPECTED), cloud.lost(EXPECTED)) == (GOOD, 0)


def test_a_disk_that_is_full_meanwhile_costs_no_row(tmp_path: Path, life: FirstLife) -> None:
    failures = []

    def full(place: str) -> None:
        if place in ("salvaging", "salvage ends") and failures.count(place) < 2:
            failures.append(place)
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

    cloud = second_life(tmp_path / "log", life, ALL["zeroed page 0"](life.log), failpoint=full)
    assert failures == ["salvaging"] * 2 + ["salvage ends"] * 2, "the fault did not fire"
    assert (cloud.verdict(EXPECTED), cloud.lost(EXPECTED)) == (GOOD, 0)


def test_a_log_of_larger_pages_that_lost_its_header_is_saved_too(tmp_path: Path) -> None:
    """Its sidecar says that its pages have 4096 bytes."""
    open_for_writing(tmp_path / LOG_NAME, page_bytes=4096).close()
    with opened(tmp_path) as events:
        put(events, range(10, 100))
    log = (tmp_path / LOG_NAME).read_bytes()
    (tmp_path / LOG_NAME).write_bytes(bytes(4096) + log[4096:])
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:
        assert events.epoch_began == "damaged"
        events.start_sending()
        wait_until(
            lambda: sent.acknowledge(events) or not events.status().backlog_readings, "acknowledged"
        )
    assert sent.ns() == list(range(10, 100))


def test_damage_found_while_running_stops_neither_intake_nor_sending(tmp_path: Path) -> None:
    sent = Sent()
    with opened(tmp_path, sent=sent, config=CONFIG, uplink=UPLINK) as events:
        log = events.stream("speed")
        for at in range(0, 20_000, 500):
            assert log.wait_accepted(
                log.append_all([reading(n, text=text_of(n)) for n in range(at, at + 500)]),
                timeout_s=PATIENCE_S,
            )
        events._writer.ask(lambda store: store.checkpoint()).result(20)
        epoch = events.epoch
        with (tmp_path / LOG_NAME).open("r+b") as file:
            size = file.seek(0, 2)
            for at in range(PAGE * 2, size, PAGE * 100):
                file.seek(at)
                file.write(bytes(PAGE))
        events.start_sending()
        wait_until(
            lambda: (
                sent.acknowledge(events)
                or (events.all_framed and not events.status().backlog_readings)
            ),
            "drained",
            timeout_s=PATIENCE_S,
        )
        assert events.epoch > epoch, "the fault did not fire"
        assert log.wait_accepted(log.append(reading(20_000)), timeout_s=PATIENCE_S)
        wait_until(lambda: sent.ns()[-1:] == [20_000], "the newest is sent")
    arrived = sent.ns()
    assert len(arrived) == len(set(arrived))
    said = sum(out.count for out in {out.key: out for out in sent}.values() if out.gap)
    assert len(arrived) + said == 20_001
    assert 0 < said < 20_000


@pytest.mark.parametrize(
    ("error", "damaged"),
    [
        (sqlite3.DatabaseError("malformed"), True),
        (LogDamagedError("counters"), True),
        (sqlite3.IntegrityError("twice"), True),
        (sqlite3.OperationalError("could not decode"), True),
        (sqlite3.ProgrammingError("closed"), False),
        (UnicodeDecodeError("utf-8", b"\xcc", 0, 1, "a message that quotes the damage"), True),
        (OSError("gone"), False),
        (ValueError("ours"), False),
    ],
)
def test_which_errors_mean_damage(error: BaseException, damaged: bool) -> None:
    assert is_damage(error) is damaged


@pytest.mark.parametrize(
    ("code", "damaged"),
    [
        ("FULL", False),
        ("BUSY", False),
        ("IOERR_FSYNC", False),
        ("IOERR_READ", True),
        ("ERROR", True),
    ],
)
def test_which_codes_mean_damage(code: str, damaged: bool) -> None:
    error = sqlite3.OperationalError(code)
    error.sqlite_errorcode = getattr(sqlite3, f"SQLITE_{code}")
    assert is_damage(error) is damaged


def test_every_record_is_found_without_sqlite_also_in_the_write_ahead_log(tmp_path: Path) -> None:
    """What is read page by page is what SQL reads."""
    db = open_for_writing(tmp_path / LOG_NAME)
    values = [
        (1, n * 10, 10, n, 1_790_000_000_000 + n, n * 7, bytes([n % 256]) * (n * 37))
        for n in range(1, 200)
    ]
    db.executemany("INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?)", values[:100])
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.executemany("INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?)", values[100:])
    for name in (LOG_NAME, f"{LOG_NAME}-wal"):
        shutil.copy(tmp_path / name, tmp_path / f"copy-{name}")
    db.close()
    (tmp_path / f"copy-{LOG_NAME}-wal").rename(tmp_path / f"copy-{LOG_NAME}-wal")
    pages = Pages(tmp_path / f"copy-{LOG_NAME}", page_size=PAGE)
    found = {row for number in pages.numbers() for row in rows(pages, number) if len(row) == 7}
    pages.close()
    assert found == set(values)


@pytest.mark.parametrize("theirs", ["text", "tables", "the same tables"])
def test_a_file_that_no_agent_wrote_is_never_read_nor_deleted(tmp_path: Path, theirs: str) -> None:
    """A wrong `data_dir`: somebody else's `events.db` stands there.

    Only one with our tables is ours.
    """
    path = tmp_path / LOG_NAME
    if theirs == "text":
        path.write_bytes(b"this is not SQLite " * 100)
    elif theirs == "tables":
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE meta (name TEXT, value TEXT)")
            db.execute("INSERT INTO meta VALUES ('dear', 'to somebody')")
        db.close()
    else:
        open_for_writing(path).close()
    before = path.read_bytes()
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:
        put(events, range(1, 4))
        events.start_sending()
        wait_until(lambda: sent.ns() == [1, 2, 3], "it measures")
    aside = tmp_path / f"{LOG_NAME}.foreign-1"
    assert aside.exists() == (theirs != "the same tables")
    if aside.exists():
        assert aside.read_bytes() == before


@pytest.mark.parametrize("whole_first", [True, False])
def test_of_a_batch_that_was_cut_the_parts_are_saved_and_not_the_whole(
    tmp_path: Path, whole_first: bool
) -> None:
    """A page that was freed still holds it, and what is framed has the boundaries of the parts."""

    def row(first: int, count: int) -> BatchRow:
        return BatchRow(1, first, count, 7, 0, checksum(b"{}", 1, first, count), b"{}")

    found = [row(1, 10), row(1, 5), row(6, 5)]
    db = open_for_writing(tmp_path / LOG_NAME)
    for saved in found if whole_first else reversed(found):
        take_over(db, saved, [(1, 10)])
    assert db.execute("SELECT first, count FROM batches").fetchall() == [(1, 5), (6, 5)]
    db.close()
