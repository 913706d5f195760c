"""What the sidecar tells, also when it was torn."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest

from edgewake.edge.log.tables.consumers import ConsumerState
from edgewake.edge.log.tables.sidecar import SIDECAR_NAME, Change, Known, Sidecar, decode
from edgewake.edge.log.tables.streams import EpochRange, StreamState

SPEED = StreamState(1, "speed", 30, 20, 5, 2, (EpochRange(4, 0, 5, 1),))


def written(directory: Path) -> Known:
    """A sidecar with three lines; what it says."""
    sidecar = Sidecar(directory)
    sidecar.rewrite(
        Known(
            "log",
            7,
            10,
            2,
            4096,
            {1: SPEED},
            {(1, 7, 1): (1, 10, 6)},
            {"tail": "5"},
            {"lost_quota": 3},
        )
    )
    sidecar.append(11, Change(formed=[((1, 7, 2), (11, 10, 16))], sources={"tail": "6"}))
    sidecar.append(
        12,
        Change(
            streams=[StreamState(1, "speed", 40)], freed=[(1, 7, 1)], counters={"lost_quota": 4}
        ),
    )
    found = sidecar.read()
    sidecar.close()
    assert found is not None
    return found


def test_the_lines_add_up(tmp_path: Path) -> None:
    assert written(tmp_path) == Known(
        "log",
        7,
        12,
        2,
        4096,
        {1: StreamState(1, "speed", 40)},
        {(1, 7, 2): (11, 10, 16)},
        {"tail": "6"},
        {"lost_quota": 4},
    )


def test_a_torn_line_ends_the_reading_and_nothing_before_it(tmp_path: Path) -> None:
    written(tmp_path)
    data = (tmp_path / SIDECAR_NAME).read_bytes()
    commits = [
        found.commit if (found := decode(data[:size])) else None for size in range(len(data) + 1)
    ]
    assert [commit for n, commit in enumerate(commits) if n == 0 or commit != commits[n - 1]] == [
        None,
        10,
        11,
        12,
    ]


def test_a_frame_that_is_replaced_in_its_own_commit_is_kept() -> None:
    known = Known("log", 7, 10, frames={(1, 7, 1): (1, 10, 6)})
    known.apply(
        {"commit": 11} | Change(freed=[(1, 7, 1)], formed=[((1, 7, 1), (1, 10, 6))]).as_json()
    )
    assert known.frames == {(1, 7, 1): (1, 10, 6)}


def test_a_consumer_is_known_as_of_its_last_commit_until_it_is_forgotten() -> None:
    known, mean, peak = (
        Known("log", 7, 10),
        ConsumerState("mean", {"speed": 5}, 2, 11),
        ConsumerState("peak", {"speed": 1}, 0, 11),
    )
    known.apply({"commit": 11} | Change(consumers=[mean, peak]).as_json())
    assert known.consumers == {"mean": mean, "peak": peak}
    known.apply({"commit": 12} | Change(forgotten=["peak"]).as_json())
    assert known.consumers == {"mean": mean}


@pytest.mark.parametrize("data", [b"", b"\xff\x00 garbage", b"0 {}\n", bytes(100)])
def test_a_file_that_is_not_ours_counts_as_missing(data: bytes) -> None:
    assert decode(data) is None


def test_the_file_of_the_first_version_is_read() -> None:
    assert decode(
        b"de3ad3e71ff26f618818f8f485f87a92 00000002174758222201 00000000000000000023\n"
    ) == Known("de3ad3e71ff26f618818f8f485f87a92", 2174758222201, 23)


def test_it_is_written_anew_before_it_grows_without_end(tmp_path: Path) -> None:
    sidecar = Sidecar(tmp_path)
    sidecar.rewrite(Known("log", 7, 1))
    commit = 1
    while not sidecar.is_due:
        commit += 1
        sidecar.append(commit, Change(sources={"tail": str(commit)}))
    sidecar.rewrite(Known("log", 7, commit))
    assert not sidecar.is_due
    assert (tmp_path / SIDECAR_NAME).stat().st_size < 1000
    sidecar.close()


def test_a_full_disk_leaves_it_behind_and_it_catches_up(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk."""
    sidecar = Sidecar(tmp_path)
    sidecar.rewrite(Known("log", 7, 1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / SIDECAR_NAME).stat().st_size + 10, hard))
    try:
        sidecar.append(2, Change(sources={"tail": "2"}))
        assert sidecar.is_due, "the fault did not fire"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    behind = sidecar.read()
    assert behind is not None
    assert behind.commit == 1
    sidecar.rewrite(Known("log", 7, 3))
    caught_up = sidecar.read()
    assert (caught_up, sidecar.is_due) == (Known("log", 7, 3), False)
    sidecar.close()
