"""How much of the write-ahead log is in use, although its file keeps its size."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.edge.log.store import LogStore
from edgewake.edge.log.tables.schema import LOG_NAME
from edgewake.edge.log.wal import WriteAheadLog
from edgewake.edge.log.writing import disk
from tests.edge.helpers import Sent, opened, put
from tests.examples import examples

PAGE = 1024
FRAME = 24 + PAGE


def frames_in_use(path: Path) -> int:
    """Frame by frame, as SQLite's documentation has it."""
    data = path.read_bytes()
    count = 0
    while data[32 + count * FRAME + 8 :][:8] == data[16:24] != b"":
        count += 1
    return count


@given(
    st.lists(st.sampled_from(["write", "much", "RESTART", "TRUNCATE"]), min_size=1, max_size=12),
    st.integers(1, 40),
)
@settings(max_examples=examples(30))
def test_it_is_told_by_the_salts(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], asked: int
) -> None:
    path = tmp_path_factory.mktemp("wal") / LOG_NAME
    wal = WriteAheadLog(path.with_name(f"{LOG_NAME}-wal"))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(
            f"PRAGMA page_size = {PAGE}; PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = "
            "0; CREATE TABLE x (y)"
        )
        for step in steps:
            if step in ("RESTART", "TRUNCATE"):
                assert db.execute(f"PRAGMA wal_checkpoint({step})").fetchone()[0] == 0
                wal.emptied()
                assert not wal.reaches(1)
            else:
                db.execute(
                    "INSERT INTO x VALUES (zeroblob(?))", (100 if step == "write" else 20_000,)
                )
                in_use = frames_in_use(wal._path)
                assert in_use > 0
                assert wal.reaches(32 + asked * FRAME) is (in_use >= asked)


def test_a_log_that_is_checkpointed_keeps_its_file_and_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound, checkpoints = 64 << 10, 0
    monkeypatch.setattr(disk, "CHECKPOINT_BYTES", bound)
    checkpoint = LogStore.checkpoint

    def counted(store: LogStore, *, shrink: bool = True) -> bool:
        nonlocal checkpoints
        checkpoints += 1
        assert not shrink, "nobody had made it longer"
        return checkpoint(store, shrink=shrink)

    monkeypatch.setattr(LogStore, "checkpoint", counted)
    sent, sizes = Sent(), list[int]()
    with opened(tmp_path, sent=sent) as events:
        for n in range(60):
            put(events, range(n, n + 1))
            sizes.append((tmp_path / f"{LOG_NAME}-wal").stat().st_size)
        assert 3 <= checkpoints <= 30, "once for each turn of the file"
        assert sizes == sorted(sizes), "it keeps its size"
        assert bound <= sizes[-1] < 2 * bound, "it is used again from its beginning"
    with opened(tmp_path, sent=sent) as events:
        events.start_sending()
        sent.until(6)
        assert sent.ns() == list(range(60))
