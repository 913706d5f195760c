"""Which files of a rotated log are to be read, from where, and in which order.

Pure: what lies in the directory is an argument.

A file is *known* by device, inode, and the bytes before the place up to which it was read. Names
mean little: rotation renames, copies and truncates. What a look at the directory can find:

    known, unchanged             go on at its offset, whatever it is called now (rename, then
                                 create)
    known, other bytes           it was truncated or its inode was reused: from its beginning
    unknown, holds what a known, now changed one held before its offset
                                 the copy of copytruncate: go on at that offset; what was added
                                 between our last read and the copy is there
    unknown, called as a rotated one, changed since the last look
                                 it was the current one while we were away: from its beginning. So
                                 also where the clock was set back
                                 meanwhile: then it changed later than all that were rotated and not
                                 ours at the last look
    unknown, under the name      the new current file: from its beginning

All other files are somebody else's, or were read long ago. Order: by time of the last change, the
current file last. Lines that the writer added between the copy and the truncation are lost by
copytruncate itself. A copy of fewer than PROOF_BYTES bytes, made in the same moment (of the file
system's clock) as the last line that was read, cannot be told from a new file: its lines come twice
rather than never.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

PROOF_BYTES: Final = 256
"""Bytes at a file's beginning, and before what was taken, that tell it from another one."""
KNOWN_MAX: Final = 16
"""Files whose offsets are remembered; older ones have long been read to their end."""
_ROTATED: Final = re.compile(r"[._-]?\d[\dT:._-]*|\.(old|bak|prev)|~")
"""What rotation adds to a name: a number, a date, or a word."""
PACKED: Final = (".gz", ".bz2", ".xz", ".zst")
"""Files that rotation has compressed: their lines cannot be followed."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A regular file in the directory."""

    name: str
    device: int
    inode: int
    size: int
    mtime_ns: int

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode."""
        return self.device, self.inode


@dataclass(frozen=True, slots=True)
class Known:
    """Everything before `offset` was taken.

    Checksums of its first bytes, and of those before `offset`, tell the file from another one.
    """

    device: int
    inode: int
    offset: int
    head_bytes: int
    head_crc: int
    tail_bytes: int = 0
    tail_crc: int = 0

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode."""
        return self.device, self.inode


@dataclass(frozen=True, slots=True)
class Follow:
    """Read this file from `offset` on."""

    file: Seen
    offset: int


Checksum: TypeAlias = Callable[[Seen, int, int], int | None]
"""(file, start, length) to the CRC-32 of those bytes; None where they cannot be read."""


def is_rotated_name(name: str, current: str) -> bool:
    """Is `name` one that rotation gives to the file `current`?

    `in.log.1`, `in.log-20261122`, `in-2026-11-22.log`, `in.log.old`, …
    """
    if name.startswith(current):
        return _ROTATED.fullmatch(name[len(current) :]) is not None
    stem, dot, suffix = current.rpartition(".")
    inner = name.removeprefix(stem).removesuffix(dot + suffix)
    return (
        bool(dot) and name == stem + inner + dot + suffix and _ROTATED.fullmatch(inner) is not None
    )


@dataclass(frozen=True, slots=True)
class LastLook:
    """What tells a file that came meanwhile from one that was there before.

    By the clock of the machine, which may be set back.
    """

    since_ns: int
    """The latest change of any followed file."""
    foreign_ns: int | None = None
    """The latest change of any file that is called as a rotated one and is not followed; None: not
    known."""

    def was_before(self, file: Seen, current: Seen | None) -> bool:
        """Was the file rotated before we began, and is it none of ours?

        Its time tells, unless the current file shows that the clock was set back.
        """
        if current is None or current.mtime_ns >= self.since_ns or self.foreign_ns is None:
            return file.mtime_ns < self.since_ns
        return file.mtime_ns <= self.foreign_ns


def plan(
    known: Sequence[Known], last: LastLook, seen: Iterable[Seen], current: str, checksum: Checksum
) -> list[Follow]:
    """The files to follow, in order."""
    by_identity = {each.identity: each for each in known}
    found = sorted(seen, key=lambda file: (file.name == current, file.mtime_ns))
    unchanged = {
        file.identity
        for file in found
        if file.identity in by_identity and _holds(file, by_identity[file.identity], checksum)
    }
    changed = [each for each in known if each.identity not in unchanged]
    live = [file for file in found if file.identity in unchanged or file.name == current]
    now = next((file for file in live if file.name == current), None)
    follows = []
    for file in found:
        if file.identity in unchanged:
            follows.append(Follow(file, by_identity[file.identity].offset))
        elif file.name == current:
            follows.append(Follow(file, 0))
        elif file.size and is_rotated_name(file.name, current):
            offset = _offset_in_unknown(
                file, changed, live, checksum, is_old=last.was_before(file, now)
            )
            if offset is not None:
                follows.append(Follow(file, offset))
    return follows


def _offset_in_unknown(
    file: Seen, changed: Sequence[Known], live: Sequence[Seen], checksum: Checksum, *, is_old: bool
) -> int | None:
    """The offset to continue from in an unknown rotated file.

    None where it is not one of ours, or holds nothing new.
    """
    copied = [each.offset for each in changed if each.offset and _holds(file, each, checksum)]
    if copied:
        return max(copied)
    was_taken = any(_is_shorter_copy(file, each, checksum) for each in changed)
    return (
        None if is_old or was_taken or any(_is_copy(file, other, checksum) for other in live) else 0
    )


def _is_copy(file: Seen, other: Seen, checksum: Checksum) -> bool:
    """Does `other`, which is followed, hold all that `file` does?"""
    length = min(PROOF_BYTES, file.size)
    return other.size >= file.size and all(
        checksum(file, start, length) == checksum(other, start, length)
        for start in (0, file.size - length)
    )


def _is_shorter_copy(file: Seen, known: Known, checksum: Checksum) -> bool:
    """Was it copied from a file that was read on afterwards, and then truncated?"""
    return (
        known.head_bytes <= file.size < known.offset
        and checksum(file, 0, known.head_bytes) == known.head_crc
    )


def _holds(file: Seen, known: Known, checksum: Checksum) -> bool:
    """Does the file hold what was taken?"""
    return (
        file.size >= known.offset
        and checksum(file, 0, known.head_bytes) == known.head_crc
        and checksum(file, known.offset - known.tail_bytes, known.tail_bytes) == known.tail_crc
    )
