"""A write-ahead log that a crash left and bad luck changed: it costs what stood there, and all that
is missing is said.

SQLite takes what comes before the first frame that is damaged, and forgets the rest without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edgewake.edge.log.damage.pages import wal_header_is_sound
from edgewake.edge.log.keeping.work import Work
from edgewake.edge.log.tables.consumers import Passed
from edgewake.edge.log.tables.schema import LOG_NAME, PAGE_BYTES, LogDamagedError
from edgewake.edge.log.tables.sidecar import SIDECAR_NAME
from tests.edge.helpers import Sent, opened, put, reading
from tests.edge.log.bare_log import FILES, BareLog, Cloud, drained, place
from tests.services import wait_until

COMMITS = 40
WAL = f"{LOG_NAME}-wal"
FRAME = 24 + PAGE_BYTES
Change = Callable[[bytearray], bytearray]


def frames(wal: bytearray) -> int:
    return (len(wal) - 32) // FRAME


def flip(share: float, offset: int) -> Change:
    """One bit of the frame that stands so far in the file."""

    def change(wal: bytearray) -> bytearray:
        wal[32 + int(share * frames(wal)) * FRAME + offset] ^= 0x10
        return wal

    return change


def zeros(share: float) -> Change:
    """A page that the flash card lost."""

    def change(wal: bytearray) -> bytearray:
        at = 32 + int(share * frames(wal)) * FRAME
        wal[at : at + FRAME] = bytes(FRAME)
        return wal

    return change


def cut(share: float) -> Change:
    """The file ends early."""
    return lambda wal: wal[: 32 + int(share * frames(wal)) * FRAME + 100]


def crashed(log: BareLog, change: Change) -> None:
    """As `BareLog.crash`, with another write-ahead log; opened as the log is, once more where it
    was damaged.
    """
    files = {
        name: (log.directory / name).read_bytes()
        for name in FILES
        if (log.directory / name).exists()
    }
    changed = bytes(change(bytearray(files[WAL])))
    assert changed != files[WAL], "the fault did not fire"
    log.store.close()
    for name, content in (files | {WAL: changed}).items():
        (log.directory / name).write_bytes(content)
    try:
        log.store = log._open()
    except LogDamagedError:
        log.store = log._open()


def header(offset: int) -> Change:
    """One bit of the file's header, without which SQLite sees an empty file, and writes over it."""

    def change(wal: bytearray) -> bytearray:
        wal[offset] ^= 0x10
        return wal

    return change


DAMAGE: dict[str, tuple[Change, int]] = {
    "the magic of the header": (header(1), 0),
    "the page size of the header": (header(10), 0),
    "the salts of the header": (header(17), 0),
    "the checksum of the header": (header(30), 0),
    "all of the header": (lambda wal: bytearray(32) + wal[32:], 0),
    "a bit of an early page": (flip(0.2, 24 + 700), 1),
    "a bit of a page in the middle": (flip(0.5, 24 + 700), 1),
    "a bit of the last page but few": (flip(0.97, 24 + 700), 5),
    "the number of a page": (flip(0.5, 0), 5),
    "the mark of a commit": (flip(0.5, 4), 1),
    "the salts of a frame": (flip(0.5, 9), 1),
    "the checksum of a frame": (flip(0.5, 17), 0),
    "a frame of zeros": (zeros(0.5), 1),
    "the second half": (cut(0.5), COMMITS // 2 + 8),
    "all but the beginning": (cut(0.1), COMMITS),
}
"""The change, and how many readings may be lost at most."""


@pytest.mark.parametrize(
    "grown", [False, True], ids=["of a log that is all in it", "of a log that was checkpointed"]
)
@pytest.mark.parametrize("what", DAMAGE)
def test_damage_costs_what_stood_there_and_is_said(what: str, grown: bool) -> None:
    """A bit in the middle cost half of the readings, and nobody was told."""
    change, lost_max = DAMAGE[what]
    with place() as directory:
        log, cloud = BareLog(directory), Cloud()
        log.put({"speed": [reading(0)]})
        if grown:
            log.store.checkpoint(shrink=False)
        for n in range(1, COMMITS):
            log.put({"speed": [reading(n)]})
        crashed(log, change)
        log.put({"speed": [reading(COMMITS)]})
        drained(log, cloud)
        heard = cloud.heard("speed")
        assert len(heard) == COMMITS + 1
        assert all(got in ("corrupt", n) for n, got in enumerate(heard))
        assert heard.count("corrupt") <= lost_max
        assert heard[-1] == COMMITS
        assert not list(directory.glob("*.damaged-*")), "it was read and is gone"
        log.close()


def test_what_a_consumer_committed_and_sources_had_read_is_there_after_it() -> None:
    with place() as directory:
        log = BareLog(directory)
        log.store.register("mean", ["speed"], at_end=False)
        log.store.checkpoint(shrink=False)
        for n in range(COMMITS):
            log.put(
                {"speed": [reading(n)]},
                positions={"file": str(n)},
                passed={"mean": Passed({"speed": n + 1}, b"%d" % n)},
            )
        crashed(log, flip(0.3, 24 + 700))
        log.catch_up()
        kept = log.store.consumer("mean")
        assert kept is not None
        assert kept.cursor == {"speed": COMMITS}
        assert kept.state in (b"%d" % (COMMITS - 1), None), "of the commit of its cursor, or none"
        assert log.store.position("file") == str(COMMITS - 1)
        log.close()


def test_frames_that_wait_are_sent_with_the_bytes_that_they_had() -> None:
    with place() as directory:
        log, cloud = BareLog(directory), Cloud()
        log.store.checkpoint(shrink=False)
        for n in range(COMMITS):
            log.put({"speed": [reading(n)]})
        first = {out.key: out.payload for out in log.send()}
        log.store.apply(Work(positions={"turn": "1"}))
        crashed(log, flip(0.1, 24 + 700))
        log.catch_up()
        again = {out.key: out.payload for out in log.send() if out.gap is None}
        assert first
        assert all(again.get(key, payload) == payload for key, payload in first.items())
        cloud.take(log.send())
        drained(log, cloud)
        log.close()


def test_through_the_whole_log_damage_is_mended_at_the_start(tmp_path: Path) -> None:
    sent = Sent()
    with opened(tmp_path / "first") as events:
        events._writer.ask(lambda store: store.checkpoint(shrink=False)).result()
        for n in range(20):
            put(events, range(n, n + 1))
        files = {name: (tmp_path / "first" / name).read_bytes() for name in FILES}
    for name, content in files.items():  # over the same files, for others would be a copy
        (tmp_path / "first" / name).write_bytes(
            bytes(flip(0.5, 24 + 700)(bytearray(content))) if name == WAL else content
        )
    with opened(tmp_path / "first", sent=sent) as events:
        assert events.epoch_began == "damaged"
        events.start_sending()
        wait_until(
            lambda: sent.acknowledge(events) or not events.status().backlog_readings, "all is sent"
        )
        lost = sum(out.count for out in sent if out.gap)
    assert len(sent.ns()) + lost == 20
    assert lost <= 1


def test_control_a_log_that_was_put_back_is_not_taken_for_damaged() -> None:
    """It comes without a write-ahead log, or with a sound one and its sidecar."""
    with place() as directory:
        log = BareLog(directory)
        log.put({"speed": [reading(0)]})
        log.restart()
        before = (directory / LOG_NAME).read_bytes()
        log.put({"speed": [reading(1)]})
        log.restart()
        log.store.close()
        (directory / LOG_NAME).write_bytes(before)
        log.store = log._open()
        assert log.store.epoch_began == "restored"
        log.put({"speed": [reading(2)]})
        log.crash()
        assert log.store.epoch_began is None, "a crash alone is no damage"
        log.close()


@pytest.mark.parametrize("change", [lambda wal: wal, flip(0.5, 24 + 700)], ids=["sound", "damaged"])
def test_a_sidecar_that_was_left_behind_takes_no_log_for_damaged(change: Change) -> None:
    """The machine died before it was synced: what the log says is newer."""
    with place() as directory:
        log, cloud = BareLog(directory), Cloud()
        log.put({"speed": [reading(0)]})
        log.store.checkpoint(shrink=False)
        sidecar = (directory / SIDECAR_NAME).read_bytes()
        for n in range(1, 9):
            log.put({"speed": [reading(n)]})
        files = {name: (directory / name).read_bytes() for name in FILES}
        log.store.close()
        for name, content in (
            files | {SIDECAR_NAME: sidecar, WAL: bytes(change(bytearray(files[WAL])))}
        ).items():
            (directory / name).write_bytes(content)
        log.store = log._open()
        assert log.store.epoch_began is None
        drained(log, cloud)
        heard = cloud.heard("speed")
        assert heard == list(range(len(heard)))
        log.close()


@pytest.mark.parametrize("content", [b"", bytes(32), bytes(5_000), b"\xff" * 31])
def test_what_a_power_loss_leaves_of_a_file_that_was_never_synced_is_no_damage(
    content: bytes,
) -> None:
    """Its length without its bytes. To read the whole log for that would cost a device hours."""
    with place() as directory:
        log = BareLog(directory)
        log.put({"speed": [reading(0)]})
        log.store.close()
        (directory / WAL).write_bytes(content)
        log.store = log._open()
        assert log.store.epoch_began is None
        assert log.store.last("speed") == 1
        log.close()


def test_the_header_that_sqlite_wrote_is_sound_and_no_other() -> None:
    with place() as directory:
        log = BareLog(directory)
        found = (directory / WAL).read_bytes()[:32]
        assert wal_header_is_sound(found)
        for bit in range(8 * 32):
            changed = bytearray(found)
            changed[bit // 8] ^= 1 << bit % 8
            assert not wal_header_is_sound(bytes(changed))
        assert not wal_header_is_sound(found[:31])
        log.close()
