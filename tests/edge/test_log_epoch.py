"""When a new epoch begins, and which number it has."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from edgewake.edge.log_epoch import LogIdentity, Mark, MarkFile, Place, next_epoch, why_new

HERE = Place("machine", 1, 2)
LOG = LogIdentity("log", 5, 100, HERE)
MARK = Mark("log", 5, 100)


@pytest.mark.parametrize(
    ("log", "mark", "place", "why"),
    [
        (None, None, HERE, "created"),
        (None, MARK, HERE, "lost"),
        (LOG, None, HERE, "without its mark"),
        (LOG, Mark("other", 5, 100), HERE, "without its mark"),
        (LOG, Mark("log", 6, 1), HERE, "restored"),
        (LOG, Mark("log", 5, 101), HERE, "restored"),
        (LOG, MARK, Place("machine", 1, 3), "copied"),
        (LOG, MARK, Place("machine", 9, 2), "copied"),
        (LOG, MARK, Place("other", 1, 2), "copied"),
        (LOG, MARK, HERE, None),
        (LOG, Mark("log", 5, 99), HERE, None),  # died between the commit and its mark
        (LOG, Mark("log", 4, 99), HERE, None),  # died between the new epoch and its mark
    ],
)
def test_a_doubt_makes_a_new_epoch(log: LogIdentity | None, mark: Mark | None, place: Place, why: str | None) -> None:
    assert why_new(log, mark, place) == why


def test_an_epoch_is_above_the_one_before_whatever_the_clock_says() -> None:
    for now_ms in (0, 1_577_836_800_000, 1_790_000_000_000, 4_000_000_000_000):
        assert next_epoch(10**15, now_ms=now_ms, rng=random.Random(1)) > 10**15


def test_two_copies_that_wake_in_the_same_second_get_different_epochs() -> None:
    assert next_epoch(5, now_ms=1_790_000_000_000, rng=random.Random(1)) != next_epoch(5, now_ms=1_790_000_000_000, rng=random.Random(2))


def test_an_epoch_fits_into_every_json_reader() -> None:
    assert next_epoch(0, now_ms=4_102_444_800_000, rng=random.Random(1)) < 2**53


def test_the_mark_is_replaced_whole_and_read_back(tmp_path: Path) -> None:
    marks = MarkFile(tmp_path)
    assert marks.read() is None
    for mark in (Mark("a" * 32, 2**53, 10**12), Mark("b", 1, 2)):
        marks.write(mark)
        assert marks.read() == mark
    marks.close()


def test_a_mark_that_is_not_ours_counts_as_missing(tmp_path: Path) -> None:
    (tmp_path / "epoch").write_bytes(b"\xff\x00 garbage")
    assert MarkFile(tmp_path).read() is None
