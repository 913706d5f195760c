"""What the log knows of a stream: how far it was accepted and framed, and under which epochs. Pure.

A *position* numbers the readings of a stream from 1 for as long as the log lives; an epoch covers a
range of positions, and a reading keeps for ever the (epoch, seq) that it was accepted under: `seq =
position - base`. So when an old image of the disk is put back, what waits in it gets the numbers
that it had, or will have, in the other life, and a reader of both lives can tell that they are the
same.

That holds because frames are cut by the readings and the bounds alone, never by time. Where the
bounds changed between the two lives (a slow link, another configuration) the cuts differ, and a
frame of one life is not that of the other. `RANGES_MAX` epochs can wait in a stream.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

RANGES_MAX: Final = 64
"""The most epochs that wait in one stream. Each is a start of the machine while nobody took the
readings of the one before; with more, the newest two become one epoch, and their readings are
numbered again."""


@dataclass(frozen=True, slots=True)
class EpochRange:
    """Positions after `base` and through `last` were accepted under `epoch`."""

    epoch: int
    base: int
    last: int
    frame: int
    """The last frame that was formed of them."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """The counters of one stream.

    `base`, `frame` and what follows them belong to the epoch that goes on.
    """

    id: int
    name: str
    last: int = 0
    """Last position that was accepted."""
    framed: int = 0
    """Last position that is in a frame."""
    base: int = 0
    """Last position before this epoch, and how many of this epoch were not sent: `kept_here`."""
    frame: int = 0
    """Last frame of this epoch."""
    older: tuple[EpochRange, ...] = ()
    """Earlier epochs whose readings still wait for their frame."""

    def next_epoch(self, epoch: int) -> int:
        """The epoch of `next_range`."""
        return self.older[0].epoch if self.older else epoch

    def next_range(self, epoch: int) -> EpochRange:
        """Where the next frame's readings belong; `epoch` is the one that goes on."""
        return self.older[0] if self.older else EpochRange(epoch, self.base, self.last, self.frame)

    def after_frame(self, framed: int) -> StreamState:
        """One more frame was formed, through position `framed` of `next_range`."""
        if not self.older:
            return replace(self, framed=framed, frame=self.frame + 1)
        first, *rest = self.older
        left = (
            (replace(first, frame=first.frame + 1), *rest) if framed < first.last else tuple(rest)
        )
        return replace(self, framed=framed, older=left)

    def kept_here(self, last: int) -> StreamState:
        """Readings through `last` came and are not sent.

        They take no `seq` of those that are, should the stream be sent one day.
        """
        return replace(self, last=last, framed=last, base=self.base + last - self.last)

    def in_new_epoch(self, ended: int, *, keep_numbers: bool) -> StreamState:
        """The epoch `ended` is over.

        What waits keeps its numbers, or is numbered again from the first that does not belong to
        older ones.
        """
        begins = max([self.framed, self.base, *(one.last for one in self.older)])
        if begins == self.last:
            return replace(self, base=self.last, frame=0)
        if not keep_numbers or len(self.older) >= RANGES_MAX:
            return replace(self, base=begins, frame=0)
        return replace(
            self,
            base=self.last,
            frame=0,
            older=(*self.older, EpochRange(ended, self.base, self.last, self.frame)),
        )

    def older_text(self) -> str:
        """`older` for the table."""
        return (
            orjson.dumps(
                [[one.epoch, one.base, one.last, one.frame] for one in self.older]
            ).decode()
            if self.older
            else ""
        )

    def checksum(self) -> int:
        """CRC of the row."""
        values = [self.id, self.name, self.last, self.framed, self.base, self.frame]
        text = "|".join(map(str, values)) + (f"|{self.older_text()}" if self.older else "")
        return zlib.crc32(b"", zlib.crc32(text.encode()))

    def row(self) -> list[Any]:
        """For the table and the sidecar: the fields in order."""
        return [
            self.id,
            self.name,
            self.last,
            self.framed,
            self.base,
            self.frame,
            self.older_text(),
        ]

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> StreamState:
        """The reverse of `row`. Raises ValueError, TypeError."""
        *counts, older = row
        number, name, last, framed, base, frame = counts
        if not isinstance(name, str) or not all(
            type(count) is int for count in (number, last, framed, base, frame)
        ):
            raise ValueError(f"not a stream: {row!r}")
        return cls(
            number,
            name,
            last,
            framed,
            base,
            frame,
            tuple(EpochRange(*one) for one in orjson.loads(older or "[]")),
        )
