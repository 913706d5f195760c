"""Which files of a rotated log are read; and a real directory under random rotation."""

from __future__ import annotations

import os
import shutil
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from edgewake.edge.sources.lines.follower import QUIET_S, FilePositions, Follower
from edgewake.edge.sources.lines.rotation import (
    Follow,
    Known,
    LastLook,
    Seen,
    is_rotated_name,
    plan,
)
from tests.examples import examples

CONTENT = {1: b"first file, first line\n" * 40, 2: b"second file\n" * 40, 3: b"third file\n" * 40}
"""By inode."""


def seen(name: str, inode: int, mtime_ns: int = 0) -> Seen:
    return Seen(name, 1, inode, len(CONTENT[inode]), mtime_ns)


def checksum(file: Seen, start: int, length: int) -> int:
    return zlib.crc32(CONTENT[file.inode][start : start + length])


def known(inode: int, offset: int, content: int | None = None) -> Known:
    data = CONTENT[content or inode]
    length = min(offset, 100)
    return Known(
        1,
        inode,
        offset,
        length,
        zlib.crc32(data[:length]),
        length,
        zlib.crc32(data[offset - length : offset]),
    )


def planned(
    known_files: list[Known], files: list[Seen], since_ns: int = 0
) -> list[tuple[str, int]]:
    def pair(follow: Follow) -> tuple[str, int]:
        return follow.file.name, follow.offset

    return [
        pair(follow) for follow in plan(known_files, LastLook(since_ns), files, "in.log", checksum)
    ]


def test_a_file_is_followed_by_what_it_is_and_not_by_its_name() -> None:
    assert planned([known(1, 200)], [seen("in.log", 2, 2), seen("in.log.1", 1, 1)]) == [
        ("in.log.1", 200),
        ("in.log", 0),
    ]


def test_all_that_were_rotated_while_away_are_read_oldest_first() -> None:
    files = [seen("in.log", 3, 30), seen("in.log.1", 2, 20), seen("in.log.2", 1, 10)]
    assert planned([known(1, 100)], files, since_ns=10) == [
        ("in.log.2", 100),
        ("in.log.1", 0),
        ("in.log", 0),
    ]


def test_what_was_rotated_before_the_last_look_is_not_read_again() -> None:
    assert planned(
        [known(1, 100)], [seen("in.log", 1, 30), seen("in.log.1", 2, 5)], since_ns=10
    ) == [("in.log", 100)]


def test_a_truncated_file_begins_anew_and_its_copy_goes_on() -> None:
    """copytruncate: inode 1 now holds what file 3 says, the copy is inode 2."""
    CONTENT[4] = CONTENT[1]
    was = known(3, 100, content=1)
    assert planned([was], [seen("in.log", 3, 30), seen("in.log.1", 4, 20)]) == [
        ("in.log.1", 100),
        ("in.log", 0),
    ]


def test_a_copy_of_a_file_that_goes_on_is_left_alone() -> None:
    CONTENT[4] = CONTENT[1]
    assert planned([known(1, 100)], [seen("in.log", 1, 30), seen("in.log.1", 4, 40)]) == [
        ("in.log", 100)
    ]


def test_other_files_of_the_directory_are_left_alone() -> None:
    assert planned(
        [known(1, 100)], [seen("in.log", 1), seen("in.logger", 2, 99), seen("in.log.gpg", 3, 99)]
    ) == [("in.log", 100)]


@pytest.mark.parametrize(
    ("name", "is_rotated"),
    [
        ("in.log.1", True),
        ("in.log-20261122", True),
        ("in.log.2026-11-22_03-00", True),
        ("in-2026-11-22.log", True),
        ("in.1.log", True),
        ("in.log.old", True),
        ("in.log~", True),
        ("in.log", False),
        ("in.logger", False),
        ("in.log.1.gz", False),
        ("in-other.log", False),
        ("main.log.1", False),
    ],
)
def test_names_that_rotation_gives(name: str, is_rotated: bool) -> None:
    assert is_rotated_name(name, "in.log") is is_rotated


def test_a_position_is_read_as_it_was_written() -> None:
    again = FilePositions(7, (Known(1, 2, 30, 30, 5, 30, 6),))
    assert FilePositions.decode(again.encode()) == again


class Rotations(RuleBasedStateMachine):
    """A writer, a rotation and a follower that comes and goes: every line is taken exactly once."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.path = self.directory / "in.log"
        self.writer = self.path.open("ab", buffering=0)
        self.written = 0
        self.now_s = 0.0
        self.rotations_away = 0
        self.taken: list[int] = []
        self.position: FilePositions | None = None
        self.follower: Follower | None = Follower(self.path, at_end=False, position=None)
        self.read()

    def teardown(self) -> None:
        if self.follower is None:
            self.start()
        for _ in range(2):
            self.now_s += QUIET_S
            self.read()
        if self.follower is not None:
            self.follower.close()
        self.writer.close()
        shutil.rmtree(self.directory)
        assert sorted(self.taken) == list(range(self.written))

    @rule(count=st.integers(1, 5))
    def write(self, count: int) -> None:
        for _ in range(count):
            self.writer.write(
                b'{"n": %d, "some": "text that makes a line as long as one usually is"}\n'
                % self.written
            )
            self.written += 1

    @rule()
    def read(self) -> None:
        if self.follower is None:
            return
        self.now_s += 2
        for _ in range(1000):
            taken = self.follower.read(self.now_s)
            if taken is None:
                return
            self.position = taken.position
            self.taken += [int(line.text.split(b" ")[1].strip(b",")) for line in taken.lines]
        raise AssertionError("it never comes to an end")

    def shift(self) -> None:
        self.rotations_away += self.follower is None
        for number in range(40, 0, -1):
            older = self.directory / f"in.log.{number}"
            if older.exists():
                older.rename(self.directory / f"in.log.{number + 1}")

    @precondition(lambda self: self.rotations_away < 4)
    @rule(late=st.integers(0, 3))
    def rename_and_create(self, late: int) -> None:
        """The writer goes on with the old file for a while; when it is signalled it opens the new
        one.
        """
        self.shift()
        self.path.rename(self.directory / "in.log.1")
        self.path.touch()
        if late:
            self.read()
            self.write(late)
        self.writer.close()
        self.writer = self.path.open("ab", buffering=0)

    @precondition(lambda self: self.rotations_away < 4)
    @rule(between=st.booleans())
    def copy_and_truncate(self, between: bool) -> None:
        self.shift()
        shutil.copyfile(self.path, self.directory / "in.log.1")
        if between:
            self.read()
        os.truncate(self.path, 0)

    @precondition(lambda self: self.follower is not None)
    @rule()
    def stop(self) -> None:
        if self.follower is not None:
            self.position = self.follower.position()
            self.follower.close()
            self.follower, self.rotations_away = None, 0

    @precondition(lambda self: self.follower is None)
    @rule()
    def start(self) -> None:
        self.follower = Follower(self.path, at_end=False, position=self.position)


TestRotations = Rotations.TestCase
TestRotations.settings = settings(max_examples=examples(60), stateful_step_count=20, deadline=None)
