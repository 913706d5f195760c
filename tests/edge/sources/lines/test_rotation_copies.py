"""Copies of a log, whole, shorter and nearly alike: what was read once is not read again, and what
only looks alike is not left out.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from edgewake.edge.sources.lines.rotation import PROOF_BYTES
from tests.edge.sources.lines.test_follower import Watch, add

HEADER = (
    b"# one header that all of them begin with, as long as what is compared at the beginning "
    b"of a file "
) * 4
"""Longer than the proof."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "in.log"


def changed_at(path: Path, seconds: float) -> None:
    os.utime(path, ns=(int(seconds * 1e9), int(seconds * 1e9)))


def texts(lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if not line.startswith(b"#")]


@pytest.mark.parametrize("away", [False, True], ids=["all the time", "after a restart"])
def test_a_copy_that_is_shorter_than_what_was_read_is_not_read_again(
    path: Path, away: bool
) -> None:
    """copytruncate, and the reader took what came between the copy and the truncation."""
    add(path, HEADER, b"one", b"two")
    watch = Watch(path)
    assert texts(watch.read()) == [b"one", b"two"]
    shutil.copyfile(path, path.with_name("in.log.1"))
    add(path, b"three")
    assert watch.read() == [b"three"]
    if away:
        watch.follower.close()
    os.truncate(path, 0)
    add(path, b"four")
    watch = watch.again() if away else watch
    assert watch.read() == [b"four"]


@pytest.mark.parametrize(("copied_s", "expected"), [(2000, [b"one", b"three"]), (1999, [b"three"])])
def test_a_shorter_copy_of_less_than_the_proof_comes_twice_rather_than_never(
    path: Path, copied_s: float, expected: list[bytes]
) -> None:
    """Nothing tells it from a new file with lines of its own, except that it is older than what
    was read after it.
    """
    add(path, b"one")
    changed_at(path, 1998)
    watch = Watch(path)
    watch.read()
    shutil.copyfile(path, path.with_name("in.log.1"))
    changed_at(path.with_name("in.log.1"), copied_s)
    add(path, b"two")
    changed_at(path, 2000)
    assert watch.read() == [b"two"]
    os.truncate(path, 0)
    add(path, b"three")
    changed_at(path, 2001)
    assert watch.read() == expected


@pytest.mark.parametrize("away", [False, True], ids=["all the time", "after a restart"])
def test_a_copy_that_is_longer_than_what_was_read_goes_on_there(path: Path, away: bool) -> None:
    add(path, b"one")
    watch = Watch(path)
    assert watch.read() == [b"one"]
    if away:
        watch.follower.close()
    add(path, b"two", b"three")
    shutil.copyfile(path, path.with_name("in.log.1"))
    os.truncate(path, 0)
    add(path, b"four")
    watch = watch.again() if away else watch
    assert watch.read() == [b"two", b"three", b"four"]


def test_a_shorter_file_that_begins_otherwise_is_no_copy_and_is_read(path: Path) -> None:
    """It was the current one while nobody looked."""
    add(path, b"one" * 200)
    watch = Watch(path)
    watch.read()
    watch.follower.close()
    path.unlink()
    add(path.with_name("in.log.1"), b"two")
    add(path, b"three")
    assert watch.again().read() == [b"two", b"three"]


def test_a_shorter_file_of_the_same_header_is_a_copy_only_within_what_was_proven(
    path: Path,
) -> None:
    """Longer than what was read: it is not a copy from before, whatever it begins with."""
    add(path, HEADER, b"one")
    watch = Watch(path)
    watch.read()
    watch.follower.close()
    path.unlink()
    add(
        path.with_name("in.log.1"),
        HEADER,
        b"two",
        b"a line that makes it longer than the first one",
    )
    add(path, HEADER, b"three")
    assert texts(watch.again().read()) == [
        b"two",
        b"a line that makes it longer than the first one",
        b"three",
    ]


def test_files_that_begin_alike_and_end_otherwise_are_no_copies_of_each_other(path: Path) -> None:
    assert len(HEADER) > PROOF_BYTES
    add(path, HEADER, b"one")
    watch = Watch(path)
    assert texts(watch.read()) == [b"one"]
    watch.follower.close()
    path.rename(path.with_name("in.log.2"))
    add(path.with_name("in.log.1"), HEADER, b"two")
    add(path, HEADER, b"three", b"four")
    assert texts(watch.again().read()) == [b"two", b"three", b"four"]


@pytest.mark.parametrize("of", ["in.log", "in.log.1"])
def test_a_copy_that_somebody_made_of_a_file_that_is_followed_is_left_alone(
    path: Path, of: str
) -> None:
    """Of the current one, or of a rotated one that was read, with a time that is newer than all."""
    add(path, b"one")
    watch = Watch(path)
    watch.read()
    path.rename(path.with_name("in.log.1"))
    add(path, b"two")
    assert watch.read() == [b"two"]
    shutil.copyfile(path.with_name(of), path.with_name("in.log.old"))
    assert watch.read() == []
    assert watch.again().read() == []


def test_a_copy_of_a_new_file_that_nobody_has_read_yet_is_read_once(path: Path) -> None:
    add(path, b"one")
    watch = Watch(path)
    watch.read()
    watch.follower.close()
    path.unlink()
    add(path, b"two")
    shutil.copyfile(path, path.with_name("in.log.1"))
    assert watch.again().read() == [b"two"]


def test_an_empty_file_that_was_followed_makes_no_old_one_ours(path: Path) -> None:
    """Every file holds what an empty one held."""
    path.touch()
    watch = Watch(path)
    assert watch.read() == []
    path.unlink()
    add(path.with_name("in.log.9"), b"long ago")
    changed_at(path.with_name("in.log.9"), 1000)
    assert watch.read() == []


def test_of_files_that_changed_in_the_same_moment_none_is_left_out(path: Path) -> None:
    """Some file systems count whole seconds."""
    add(path, b"one")
    changed_at(path, 2000)
    watch = Watch(path)
    assert watch.read() == [b"one"]
    watch.follower.close()
    path.rename(path.with_name("in.log.2"))
    add(path.with_name("in.log.1"), b"two")
    add(path, b"three")
    for name in ("in.log.2", "in.log.1", "in.log"):
        changed_at(path.with_name(name), 2000)
    assert watch.again().read() == [b"two", b"three"]


def test_what_changed_before_the_last_look_and_is_not_known_was_read_long_ago(path: Path) -> None:
    add(path, b"one")
    changed_at(path, 2000)
    watch = Watch(path)
    assert watch.read() == [b"one"]
    watch.follower.close()
    add(path.with_name("in.log.1"), b"older")
    changed_at(path.with_name("in.log.1"), 1999)
    assert watch.again().read() == []


def test_rotated_files_are_read_in_the_order_of_their_times_and_the_current_one_last(
    path: Path,
) -> None:
    add(path, b"one")
    changed_at(path, 2000)
    watch = Watch(path)
    watch.read()
    watch.follower.close()
    for name, text, seconds in (
        ("in.log.1", b"three", 2002),
        ("in.log-20261122", b"two", 2001),
        ("in.log.old", b"four", 2003),
    ):
        add(path.with_name(name), text)
        changed_at(path.with_name(name), seconds)
    path.unlink()
    add(path, b"five")
    changed_at(path, 1990)
    assert watch.again().read() == [b"two", b"three", b"four", b"five"]
