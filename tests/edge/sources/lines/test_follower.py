"""What happens to a file that is followed: moved, replaced, emptied, linked, gone, written in odd
ways. Each line is taken once.
"""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest

from edgewake.edge.sources.lines.follower import (
    CHUNK_BYTES,
    CLOSE_S,
    LOOK_S,
    OPEN_MAX,
    QUIET_S,
    FilePositions,
    Follower,
)
from edgewake.edge.sources.lines.rotation import KNOWN_MAX
from edgewake.protocol.errors import LocalError
from tests.open_files import open_files


class Watch:
    """A follower whose time is told, and what it has taken."""

    def __init__(
        self, path: Path, *, at_end: bool = False, position: FilePositions | None = None
    ) -> None:
        self.path = path
        self.now_s = 0.0
        self.taken: list[bytes] = []
        self.position = position
        self.follower = Follower(path, at_end=at_end, position=position)

    def read(self, after_s: float = LOOK_S) -> list[bytes]:
        """What is new after so many seconds."""
        self.now_s += after_s
        new: list[bytes] = []
        while (taken := self.follower.read(self.now_s)) is not None:
            new += [line.text for line in taken.lines]
            self.position = taken.position
        self.taken += new
        return new

    def again(self) -> Watch:
        """As after a restart of the agent."""
        self.follower.close()
        kept = None if self.position is None else FilePositions.decode(self.position.encode())
        return Watch(self.path, position=kept)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "in.log"


def add(path: Path, *lines: bytes, end: bytes = b"\n") -> None:
    with path.open("ab") as file:
        file.write(b"".join(line + end for line in lines))


def packed(path: Path, name: str) -> None:
    """Rotate a file and pack it, as logrotate does without `delaycompress`."""
    changed_ns = path.stat().st_mtime_ns
    there = path.with_name(name)
    with gzip.open(there, "wb") as file:
        file.write(path.read_bytes())
    os.utime(there, ns=(changed_ns, changed_ns))
    path.unlink()


def test_what_was_packed_while_nobody_read_is_said_and_what_was_read_before_is_not(
    path: Path,
) -> None:
    add(path, b"one", b"two")
    watch = Watch(path)
    assert watch.read() == [b"one", b"two"]
    watch.follower.close()
    later_ns = path.stat().st_mtime_ns + 1
    # Read to its end, although it changed after the last look.
    os.utime(path, ns=(later_ns, later_ns))
    packed(path, "in.log.3.gz")
    add(path, b"three")
    os.utime(path, ns=(later_ns + 1, later_ns + 1))
    packed(path, "in.log.2.gz")
    path.with_name("other.log.1.gz").write_bytes(b"another's")
    add(path, b"four")
    again = watch.again()
    assert again.read() == [b"four"]
    assert again.follower.packed == ["in.log.2.gz"]
    # It is said once, and what nobody wanted is no loss.
    fresh = Watch(path)
    fresh.read()
    assert fresh.follower.packed == ()
    after = again.again()
    after.read()
    assert after.follower.packed == []


def test_a_writer_that_does_not_append_loses_no_line_when_its_file_is_copied_and_emptied(
    path: Path,
) -> None:
    """`program > in.log` goes on at its old place, so after copytruncate the file begins with a
    hole as large as it was.
    """
    with path.open("wb", buffering=0) as writer:
        writer.write(b"one\ntwo\n" * 50)
        watch = Watch(path)
        assert len(watch.read()) == 100
        shutil.copyfile(path, path.with_name("in.log.1"))
        os.truncate(path, 0)
        writer.write(b"three\nfour\n")
        assert path.read_bytes().startswith(b"\0" * 400), "the hole that this is about"
        assert watch.read() == [b"three", b"four"]
        writer.write(b"five\n")
        assert watch.again().read() == [b"five"]


def test_a_file_that_was_removed_is_read_to_its_end_and_the_new_one_from_its_beginning(
    path: Path,
) -> None:
    add(path, b"one")
    watch = Watch(path)
    assert watch.read() == [b"one"]
    with path.open("ab", buffering=0) as late:
        path.unlink()
        add(path, b"three")
        late.write(b"two\n")
        assert watch.read() == [b"two", b"three"]


def test_a_file_that_was_moved_to_another_folder_is_read_to_its_end(path: Path) -> None:
    add(path, b"one")
    watch = Watch(path)
    watch.read()
    archive = path.parent / "archive"
    archive.mkdir()
    add(path, b"two")
    path.rename(archive / "in.log.1")
    add(path, b"three")
    assert watch.read() == [b"two", b"three"]
    add(archive / "in.log.1", b"late")
    assert watch.read() == [b"late"]


def test_a_file_that_was_replaced_by_one_of_the_same_size_is_read_from_its_beginning(
    path: Path,
) -> None:
    add(path, b"one")
    watch = Watch(path)
    watch.read()
    add(path.with_name("new"), b"two")
    path.with_name("new").replace(path)
    assert watch.read() == [b"two"]


def test_an_editor_that_writes_the_file_anew_with_more_lines_repeats_none(path: Path) -> None:
    """The new file holds the old bytes and more: nothing tells it from the old one, but its
    number.
    """
    add(path, b"one", b"two")
    watch = Watch(path)
    watch.read()
    content = path.read_bytes()
    with path.open("r+b") as same:
        same.truncate(0)
        same.write(content + b"three\n")
    assert watch.read() == [b"three"]


def test_a_file_with_two_names_is_read_once(path: Path) -> None:
    """Rotation by a hard link first, and the removal of the name second."""
    add(path, b"one")
    watch = Watch(path)
    watch.read()
    os.link(path, path.with_name("in.log.1"))
    add(path, b"two")
    assert watch.read() == [b"two"]
    path.unlink()
    add(path, b"three")
    add(path.with_name("in.log.1"), b"late")
    assert sorted(watch.read()) == [b"late", b"three"]
    assert watch.again().read() == []


def test_a_link_that_is_turned_to_the_next_file_loses_nothing(path: Path) -> None:
    """As cronolog does: the name is a link, the files have dates in their names and lie
    elsewhere.
    """
    first, second = path.parent / "x" / "1", path.parent / "x" / "2"
    first.parent.mkdir()
    add(first, b"one")
    path.symlink_to(first)
    watch = Watch(path)
    assert watch.read() == [b"one"]
    add(first, b"two")
    add(second, b"three")
    path.unlink()
    path.symlink_to(second)
    assert watch.read() == [b"two", b"three"]


def test_a_link_that_leads_nowhere_is_a_file_that_is_not_there_yet(path: Path) -> None:
    path.symlink_to(path.with_name("target"))
    watch = Watch(path)
    assert watch.read() == []
    add(path.with_name("target"), b"one")
    assert watch.read() == [b"one"]


def test_a_folder_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    watch = Watch(tmp_path / "later" / "in.log")
    assert watch.read() == []
    (tmp_path / "later").mkdir()
    add(tmp_path / "later" / "in.log", b"one")
    assert watch.read() == [b"one"]


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file_is_refused_and_a_file_in_its_place_is_read(path: Path, kind: str) -> None:
    if kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    watch = Watch(path)
    with pytest.raises(LocalError, match="is not a regular file"):
        watch.read()
    if kind == "folder":
        path.rmdir()
    else:
        path.unlink()
    add(path, b"one")
    assert watch.read() == [b"one"]


def test_other_things_beside_the_file_are_no_concern_of_ours(path: Path) -> None:
    path.with_name("in.log.1").mkdir()
    os.mkfifo(path.with_name("in.log.2"))
    path.with_name("in.log.3").symlink_to("nowhere")
    path.with_name("in.log.4.gz").write_bytes(b"packed\n")
    add(path, b"one")
    assert Watch(path).read() == [b"one"]


def test_a_last_line_without_an_end_waits_in_the_current_file_however_long(path: Path) -> None:
    add(path, b"one\ntw", end=b"")
    watch = Watch(path)
    assert watch.read() == [b"one"]
    assert watch.read(100 * QUIET_S) == []
    add(path, b"o")
    assert watch.read() == [b"two"]


def test_in_a_rotated_file_it_counts_when_the_file_was_quiet_for_long_enough_and_no_moment_before(
    path: Path,
) -> None:
    add(path, b"one\ntwo", end=b"")
    watch = Watch(path)
    watch.read()
    path.rename(path.with_name("in.log.1"))
    assert watch.read() == []
    assert watch.read(QUIET_S - LOOK_S - 0.5) == []
    assert watch.read(0.5) == [b"two"]
    assert watch.read(QUIET_S) == [], "once"
    add(path.with_name("in.log.1"), b"three")
    assert watch.read() == [b"three"], "the writer was not gone yet"
    assert watch.again().read() == []


def test_growth_puts_the_end_of_a_rotated_file_off(path: Path) -> None:
    add(path, b"one\nt", end=b"")
    watch = Watch(path)
    watch.read()
    path.rename(path.with_name("in.log.1"))
    for piece in (b"w", b"o", b"!"):
        add(path.with_name("in.log.1"), piece, end=b"")
        assert watch.read(QUIET_S - 0.5) == []
    assert watch.read(QUIET_S) == [b"two!"]


@pytest.mark.parametrize(
    ("before", "taken"),
    [
        (b"", [b"half and whole", b"new"]),
        (b"old\n", [b"half and whole", b"new"]),
        (b"x" * (2 * CHUNK_BYTES) + b"\n", [b"half and whole", b"new"]),
        (b"x" * CHUNK_BYTES, [b" and whole", b"new"]),
    ],
    ids=[
        "nothing",
        "a line",
        "a long line",
        "so much of one line that its beginning is not looked for",
    ],
)
def test_who_begins_at_the_end_begins_with_a_whole_line(
    path: Path, before: bytes, taken: list[bytes]
) -> None:
    path.write_bytes(before + b"half")
    watch = Watch(path, at_end=True)
    assert watch.read() == []
    add(path, b" and whole", b"new")
    assert watch.read() == taken


def test_who_begins_at_the_end_of_nothing_takes_all_that_comes(path: Path) -> None:
    watch = Watch(path, at_end=True)
    assert watch.read() == []
    add(path, b"one")
    assert watch.read() == [b"one"]


def test_what_was_rotated_before_the_first_look_is_not_ours(path: Path) -> None:
    add(path.with_name("in.log.1"), b"long ago")
    add(path, b"one")
    watch = Watch(path)
    assert watch.read() == [b"one"]
    assert watch.again().read() == []


def test_a_large_file_is_given_out_in_pieces_each_with_its_own_place(path: Path) -> None:
    lines = [b"%06d" % number + b"x" * 1000 for number in range(200)]
    add(path, *lines)
    follower = Follower(path, at_end=False, position=None)
    first = follower.read(0.0)
    follower.close()
    assert first is not None
    assert 0 < len(first.lines) <= CHUNK_BYTES // 1000
    rest = Watch(path, position=first.position).read()
    assert [line.text for line in first.lines] + rest == lines


def test_files_that_are_over_are_closed_and_never_more_than_a_few_are_open(path: Path) -> None:
    watch = Watch(path)
    for number in range(2 * OPEN_MAX):
        add(path, b"%d" % number)
        watch.read()
        path.rename(path.with_name(f"in.log.{1000 - number}"))
        watch.read(QUIET_S + LOOK_S)
    add(path, b"last")
    watch.read()
    watch.read(LOOK_S)
    assert 1 < len(open_files(path.parent)) <= OPEN_MAX
    watch.read(CLOSE_S + LOOK_S)
    watch.read(LOOK_S)
    assert open_files(path.parent) == ["in.log"]
    watch.follower.close()
    assert open_files(path.parent) == []


@pytest.mark.parametrize("is_new", [False, True], ids=["goes on", "begins again"])
def test_a_file_is_truncated_and_grows_past_the_old_place_between_any_two_reads_of_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    """Nobody looks in time; each call of the system is followed by it once."""
    old, new = [b"%03d" % n for n in range(20)], [b"new %03d" % n for n in range(50)]
    reads_left, rewritten = 0, True
    read = os.pread

    def then_rewrite(fd: int, length: int, offset: int) -> bytes:
        nonlocal reads_left, rewritten
        data = read(fd, length, offset)
        reads_left -= 1
        if reads_left == 0:
            path.write_bytes(b"".join(line + b"\n" for line in new))
            rewritten = True
        return data

    monkeypatch.setattr("edgewake.edge.sources.lines.follower.os.pread", then_rewrite)
    rewrite_at = 0
    while rewritten:
        path.unlink(missing_ok=True)
        add(path, *old)
        watch = Watch(path)
        before = watch.read()
        if is_new:
            watch = watch.again()
            add(path, b"020")
        rewrite_at += 1
        reads_left, rewritten = rewrite_at, False
        watch.read()
        reads_left = 0
        if rewritten:
            watch.read()
            taken = before + watch.taken if is_new else watch.taken
            assert [line for line in taken if line != b"020"] == [*old, *new], rewrite_at
            after = watch.again()
            add(path, b"last")
            assert after.read() == [b"last"], rewrite_at
    assert rewrite_at > 4


def test_the_places_of_so_many_files_are_kept_and_no_more(path: Path) -> None:
    watch = Watch(path)
    for number in range(2 * KNOWN_MAX):
        add(path, b"%d" % number)
        watch.read()
        path.rename(path.with_name(f"in.log.{1000 - number}"))
        watch.read(QUIET_S + LOOK_S)
    assert watch.taken == [b"%d" % number for number in range(2 * KNOWN_MAX)]
    assert watch.position is not None
    assert len(watch.position.files) <= KNOWN_MAX
    assert watch.again().read() == [], "what is not remembered was changed before the last look"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "5",
        "{}",
        '{"files": 5, "since_ns": 1}',
        '{"files": [{}], "since_ns": 1}',
    ],
)
def test_a_place_that_cannot_be_read_is_an_error_that_the_source_expects(text: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        FilePositions.decode(text)
