"""The log is opened again after an error of the disk: what was not stored is stored then, what was
stored is not stored twice, and a disk that fails for hours costs no open files.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.damage.salvage import damaged_logs, is_damage, set_aside
from edgewake.edge.log.keeping.work import Limits, Work
from edgewake.edge.log.state import LogState
from edgewake.edge.log.store import LogStore
from edgewake.edge.log.tables.schema import LOG_NAME
from edgewake.edge.log.tables.sidecar import SIDECAR_NAME
from edgewake.edge.log.writing import disk
from edgewake.edge.log.writing.disk import DAMAGE_MAX, LogDisk
from edgewake.protocol.clock import SystemClock
from tests.edge.helpers import Sent, opened, put, reading
from tests.services import wait_until

LIMITS = Limits(
    quota_bytes=1 << 20, readings_max=10, bytes_max=10_000, window_frames=8, window_bytes=1 << 20
)


def failing(code: str = "IOERR_FSYNC") -> sqlite3.OperationalError:
    """What SQLite says of a disk."""
    error = sqlite3.OperationalError(code)
    error.sqlite_errorcode = getattr(sqlite3, f"SQLITE_{code}")
    return error


class Bench:
    """A log on a disk whose errors are given, place by place: each is raised once, and then comes
    the next.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.errors: dict[str, list[BaseException | Callable[[], None]]] = {}
        self.opened: list[BaseException | None] = []
        self.renewed = 0
        self.stopping = threading.Event()
        self.disk = LogDisk(
            self._open,
            directory,
            LogConfig(reserve_bytes=0),
            stopping=self.stopping,
            on_renewed=self._on_renewed,
        )

    def _on_renewed(self) -> None:
        self.renewed += 1

    def fail(self, place: str) -> None:
        """The failpoint."""
        if self.errors.get(place):
            what = self.errors[place].pop(0)
            if isinstance(what, BaseException):
                raise what
            what()

    def _open(self, why: BaseException | None) -> LogStore:
        self.opened.append(why)
        if why is not None and is_damage(why):
            set_aside(self.directory)
        self.fail("opening")
        return LogStore(
            self.directory,
            LIMITS,
            SystemClock(),
            boot="boot",
            new_epoch=lambda previous, _now: previous + 10,
            failpoint=self.fail,
        )

    def put(self, *numbers: int) -> bool:
        """In one commit, tried as often as the writer would; was it taken at the first try?"""
        work, tries = Work(readings={"speed": [reading(n) for n in numbers]}), 1
        while self.disk.apply(work) is None:
            tries += 1
            assert tries < 10
        return tries == 1

    @property
    def kept(self) -> list[object]:
        """All that is in the log, in order."""
        found, _ = self.disk.store.read("speed", 0, readings_max=1_000, bytes_max=1 << 20)
        return [fields["n"] for one in found for _, fields in one.received().readings]  # type: ignore[union-attr]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """With a log that holds three readings."""
    monkeypatch.setattr(disk, "RETRY_S", 0.0)
    found = Bench(tmp_path)
    assert found.put(1, 2, 3)
    yield found
    found.disk.close()


def test_a_commit_that_failed_is_done_again_once(bench: Bench) -> None:
    bench.errors["inserted"] = [failing()]
    assert not bench.put(4)
    assert bench.kept == [1, 2, 3, 4]
    assert len(bench.opened) == 2


def test_a_commit_that_was_stored_although_it_said_otherwise_is_not_done_again(
    bench: Bench,
) -> None:
    """An fsync that failed behind a write that did not."""
    bench.errors["committed"] = [failing()]
    assert bench.put(4)
    assert len(bench.opened) == 2, "the fault did not fire"
    assert bench.kept == [1, 2, 3, 4]
    assert bench.put(5)
    assert bench.kept == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "sidecar", [None, b"", b"\x00" * 200, b"0 {}\n"], ids=["gone", "empty", "zeros", "not ours"]
)
def test_a_commit_that_failed_is_done_again_also_where_the_sidecar_is_gone_with_it(
    bench: Bench, sidecar: bytes | None
) -> None:
    """The new epoch counts as a commit: it was taken for the one that failed, and what had been
    accepted was nowhere.
    """

    def lose() -> None:
        path = bench.directory / SIDECAR_NAME
        path.unlink() if sidecar is None else path.write_bytes(sidecar)
        raise failing()

    bench.errors["inserted"] = [lose]
    assert not bench.put(4)
    assert bench.disk.store.epoch_began == "without its sidecar", "the fault did not fire"
    assert bench.kept == [1, 2, 3, 4]


def test_what_was_accepted_is_sent_where_log_and_sidecar_failed_at_once(tmp_path: Path) -> None:
    """The same through the whole log: 'accepted' was said of readings that were in no file."""
    armed, sent = [False], Sent()

    def lose(place: str) -> None:
        if place == "inserted" and armed[0]:
            armed[0] = False
            (tmp_path / SIDECAR_NAME).unlink()
            raise failing()

    with opened(tmp_path, failpoint=lose) as events:
        put(events, range(1, 4))
        armed[0] = True
        put(events, range(4, 7))
        assert not armed[0], "the fault did not fire"
    with opened(tmp_path, sent=sent) as events:
        events.start_sending()
        wait_until(lambda: sorted(sent.ns()) == [1, 2, 3, 4, 5, 6], "all that was accepted")  # type: ignore[type-var]


def test_a_log_that_went_back_behind_its_sidecar_takes_the_work_again(bench: Bench) -> None:
    """The disk forgot a commit that it had confirmed: that one is gone, the next is not taken for
    stored because of the new epoch.
    """
    bench.disk.store.checkpoint()
    before = (bench.directory / LOG_NAME).read_bytes()
    assert bench.put(4)

    def roll_back() -> None:
        for beside in ("-wal", "-shm"):
            (bench.directory / f"{LOG_NAME}{beside}").unlink(missing_ok=True)
        (bench.directory / LOG_NAME).write_bytes(before)

    bench.errors["inserted"] = [failing()]
    bench.errors["opening"] = [roll_back]
    assert not bench.put(5)
    assert bench.disk.store.epoch_began == "restored", "the fault did not fire"
    assert bench.kept == [1, 2, 3, 5]


def test_damage_in_the_commit_begins_another_log_and_takes_the_work_there(bench: Bench) -> None:
    bench.errors["inserted"] = [sqlite3.DatabaseError("malformed")]
    assert not bench.put(4)
    assert (bench.renewed, bench.disk.store.epoch_began) == (1, "damaged")
    while bench.disk.store.is_salvaging:
        bench.disk.carry_over(0.0)
    assert bench.kept == [1, 2, 3, 4]
    assert damaged_logs(bench.directory) == []


@pytest.mark.parametrize("times", [DAMAGE_MAX, DAMAGE_MAX + 1])
def test_damage_after_damage_ends_the_agent_beyond_the_bound_and_a_commit_between_sets_it_back(
    bench: Bench, times: int
) -> None:
    bench.errors["inserted"] = [sqlite3.DatabaseError("malformed") for _ in range(times)]
    if times > DAMAGE_MAX:
        with pytest.raises(sqlite3.DatabaseError):
            bench.put(4)
        return
    assert not bench.put(4)
    bench.errors["inserted"] = [sqlite3.DatabaseError("malformed") for _ in range(times)]
    assert not bench.put(5)


def open_sidecars(directory: Path) -> int:
    """Files of that name that this process has open, also those that were replaced since."""
    found = 0
    for fd in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found += str(fd.readlink()).removesuffix(" (deleted)") == str(directory / SIDECAR_NAME)
    return found


def test_a_disk_that_fails_again_and_again_keeps_no_file_open(bench: Bench) -> None:
    """Each try opens the log and its sidecar, and the checkpoint fails: after a thousand tries
    nothing else could be opened.
    """
    bench.errors["inserted"] = [failing()]
    bench.errors["checkpointing"] = [failing() for _ in range(40)]
    assert not bench.put(4)
    assert bench.errors["checkpointing"] == [], "the fault did not fire"
    assert len(bench.opened) == 42
    assert open_sidecars(bench.directory) == 1
    assert bench.kept == [1, 2, 3, 4]


def test_control_stores_that_are_not_closed_are_seen(bench: Bench) -> None:
    stores = [bench._open(None) for _ in range(5)]
    assert open_sidecars(bench.directory) == 6
    for store in stores:
        store.close()
    assert open_sidecars(bench.directory) == 1


def test_a_sidecar_that_cannot_be_synced_is_closed_all_the_same(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [bench._open(None) for _ in range(5)]

    def refuse(_fd: int) -> None:
        raise OSError(5, "EIO")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        for store in stores:
            with pytest.raises(OSError, match="EIO"):
                store.close()
    assert open_sidecars(bench.directory) == 1


def test_an_agent_that_is_to_stop_waits_for_no_disk(bench: Bench) -> None:
    bench.stopping.set()
    bench.errors["inserted"] = [failing()]
    bench.errors["opening"] = [failing("CANTOPEN")]
    with pytest.raises(sqlite3.OperationalError, match="CANTOPEN"):
        bench.put(4)
    bench.disk.close()
    again = Bench(bench.directory)
    assert again.kept == [1, 2, 3]
    again.disk.close()


def test_what_kept_it_from_being_opened_is_told_to_who_opens_it_next_only_where_it_is_damage(
    bench: Bench,
) -> None:
    bench.errors["inserted"] = [failing()]
    bench.errors["opening"] = [failing("CANTOPEN"), sqlite3.DatabaseError("malformed")]
    assert not bench.put(4)
    first, error, none, damage = bench.opened
    assert (first, none) == (None, None)
    assert isinstance(error, sqlite3.OperationalError)
    assert is_damage(damage)  # type: ignore[arg-type]


def test_a_full_disk_is_not_opened_again(bench: Bench) -> None:
    bench.errors["inserted"] = [failing("FULL")]
    assert bench.disk.apply(Work(readings={"speed": [reading(4)]})) is None
    assert (bench.disk.state, len(bench.opened)) == (LogState.FULL, 1)
    assert bench.put(4)
    assert bench.kept == [1, 2, 3, 4]


@pytest.mark.parametrize(("code", "opened_again"), [("FULL", 1), ("IOERR_WRITE", 2)])
def test_room_is_made_with_a_checkpoint_and_the_deletions_alone(
    bench: Bench, code: str, opened_again: int
) -> None:
    assert bench.disk.make_room(None) is not None
    bench.errors["checkpointing"] = [failing(code)]
    assert bench.disk.make_room(Work(readings={"speed": [reading(4)]})) is None
    assert len(bench.opened) == opened_again
    assert bench.kept == [1, 2, 3]


def test_a_question_is_asked_once_more_where_the_log_was_damaged_and_not_where_it_was_not(
    bench: Bench,
) -> None:
    asked: list[LogStore] = []

    def question(store: LogStore) -> str:
        asked.append(store)
        if len(asked) == 1:
            raise sqlite3.DatabaseError("malformed")
        return "answered"

    assert bench.disk.answer(question) == "answered"
    assert len(set(map(id, asked))) == 2
    with pytest.raises(sqlite3.OperationalError):
        bench.disk.answer(lambda _store: (_ for _ in ()).throw(failing("BUSY")))


@pytest.mark.parametrize("code", ["FULL", "IOERR_WRITE"])
def test_a_part_of_a_damaged_log_that_could_not_be_carried_over_is_tried_again_later(
    bench: Bench, code: str
) -> None:
    bench.errors["inserted"] = [sqlite3.DatabaseError("malformed")]
    bench.put(4)
    disk.RETRY_S = 0.5  # the fixture puts it back
    bench.errors["salvaging"] = [failing(code)]
    assert not bench.disk.carry_over(100.0)
    assert not bench.disk.salvage_is_due(100.4)
    assert bench.disk.salvage_is_due(100.5)
    while bench.disk.store.is_salvaging:
        bench.disk.carry_over(101.0)
    assert bench.kept == [1, 2, 3, 4]


def test_the_commit_that_was_found_is_that_of_the_file_and_not_of_the_epoch_that_began(
    bench: Bench,
) -> None:
    commit = bench.disk.store.commit
    bench.disk.close()
    (bench.directory / SIDECAR_NAME).unlink()
    again = Bench(bench.directory)
    assert (again.disk.store.commit_found, again.disk.store.commit) == (commit, commit + 1)
    assert again.disk.store.epoch == 20
    again.disk.close()
