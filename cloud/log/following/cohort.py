"""A cohort: all subscribers of a view at the same position, and the chunk being made for them.

They may be one second or one week behind. One reading, one filtering and one encoding serve them
all:

One reading, one filtering and one encoding serve them all:

    reading ──▶ waiting for blocks of older records ──▶ reading ──▶ chunk
       │                                                   └──────▶ lost
       └──▶ parked: nothing is left; goes on with the next records

With its chunk the cohort is over: everybody has it. It is over as well when its range is lost,
because retention deleted it: everybody gets a gap.

A partition whose older records cannot be read is left out, so that it holds up none of the others,
and is tried again. Blocks are held by as many cohorts as there is room for
(`edgewake.cloud.log.following.block_slots`); the others wait for their turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from edgewake.cloud.log.chunks import Chunk, Key
from edgewake.cloud.log.following.block_slots import BlockSlots, Claim
from edgewake.cloud.log.following.turns import IsTimeUp
from edgewake.cloud.log.reader import At, Batch, Reader, Stop
from edgewake.cloud.log.replay import Answer, Block, BlockKey, Gone, Replay
from edgewake.cloud.log.subscription import Positions

AGAIN_S: Final = 0.5
"""Until a partition whose older records could not be read is tried again."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The next records of partition `at` are not kept any more."""

    at: At


class Member(Protocol):
    """A subscriber of the view that waits in a cohort."""

    wake: Callable[[], None]

    def deliver(self, item: Chunk[Any] | Lost | None) -> None:
        """The cohort is over."""

    def move_to(self, cohort: Cohort) -> None:
        """Wait in another cohort from now on."""


class Owner(Protocol):
    """What a cohort needs of the view that owns it."""

    replay: Replay
    block_slots: BlockSlots
    horizon: Callable[[], int]
    call_later: Callable[[float, Callable[[], None]], object]

    def reader(self, positions: Positions) -> Reader:
        """A reader for the chunk that begins there."""

    def has(self, cohort: Cohort) -> bool:
        """Is the cohort still one of this view's?"""

    def finish(self, cohort: Cohort, batch: Batch, *, is_at_end: bool) -> None:
        """The cohort's chunk is ready."""

    def lose(self, cohort: Cohort, lost: Lost) -> None:
        """Tell that the cohort's range is not kept any more."""

    def fail(self, error: Exception) -> None:
        """The subscription cannot be served."""

    def park(self, cohort: Cohort) -> None:
        """The cohort has read everything that can be read now."""

    def unpark(self, cohort: Cohort) -> None:
        """The parked cohort may have something to read."""

    def continue_(self, cohort: Cohort) -> None:
        """The cohort waited for blocks and has them."""

    def forget(self, cohort: Cohort) -> None:
        """The cohort has no subscribers."""


class Cohort:
    """The subscribers of a view at one position. `view` owns it."""

    def __init__(self, view: Owner, key: Key, positions: Positions) -> None:
        self.key = key
        self.subscribers: set[Member] = set()
        self.is_parked = False
        self.lacks_older = False
        """Is it parked only until older records, which could not be read, are tried again?"""
        self.is_live = False
        """Does it read new records, for those who waited for them?"""
        self._view = view
        self.positions = positions
        self._reader: Reader | None = None
        self._blocks: dict[At, Block] = {}
        self._asked: set[At] = set()
        self._left_out: set[At] = set()
        self._room = Claim(self._granted)

    def work(self, is_time_up: IsTimeUp) -> bool:
        """Go on until the time is up; True when there is more to do.

        What fails ends the view and nothing else.
        """
        if not self._view.has(self):
            return False
        if not self.subscribers:
            self._view.forget(self)
            return False
        try:
            return self._read(is_time_up)
        except Exception as error:
            # A filter that fails on some value, or an encoding: it must not reach other views.
            self._view.fail(error)
            return False

    @property
    def is_at_live_end(self) -> bool:
        """Does it wait for new records, having read all that there are?"""
        return self.is_parked and not self.lacks_older

    def _read(self, is_time_up: IsTimeUp) -> bool:
        self.is_parked = self.lacks_older = False
        if self._reader is None:
            self._reader = self._view.reader(self.positions)
        while self._has_blocks(self._reader):
            match self._reader.read(
                self._blocks, horizon=self._view.horizon(), is_time_up=is_time_up
            ):
                case Stop.TIME:
                    return True
                case Stop.BLOCK if not self._reader.has_moved:
                    continue
                case Stop.END if not self._reader.has_moved:
                    self._park()
                case Stop.END:
                    self._finish(self._reader, is_at_end=True)
                case _:
                    self._finish(self._reader, is_at_end=False)
            return False
        return False

    def _finish(self, reader: Reader, *, is_at_end: bool) -> None:
        self._view.finish(
            self, reader.batch(is_at_end=is_at_end), is_at_end=is_at_end and not self._left_out
        )

    def release(self) -> None:
        """Hold no blocks."""
        self._blocks.clear()
        self._view.block_slots.release(self._room)

    def _granted(self) -> None:
        self._view.continue_(self)

    def _park(self) -> None:
        self.is_parked = True
        self.lacks_older = bool(self._left_out)
        self._reader = None
        self.release()
        self._view.park(self)
        if self._left_out:
            self._left_out.clear()
            self._view.call_later(AGAIN_S, self.wake)

    def wake(self) -> None:
        """There may be something to read."""
        if self.is_parked:
            self.is_parked = False
            self._view.unpark(self)

    def move_on(self, key: Key, positions: Positions) -> None:
        """Move to `key`: the chunk shows nothing, so nobody must be woken for it."""
        self.key, self.positions = key, positions
        self.lacks_older = False
        self._reader = None
        self._left_out.clear()

    # Older records.

    def _has_blocks(self, reader: Reader) -> bool:
        """Does it have blocks for all older partitions?

        It requests the missing ones, once there is room for them.
        """
        wanted = [at for at in reader.older() if at not in self._left_out]
        if wanted and self._room.has < len(wanted):
            self._blocks.clear()
            if not self._view.block_slots.reserve(self._room, len(wanted)):
                return False
        for at in wanted:
            if at in self._asked:
                continue
            key = reader.block_key(at)
            if self._covers(at, key):
                continue
            block = self._view.replay.at_hand(key)
            if block is not None:
                self._blocks[at] = block
            else:
                self._asked.add(at)
                self._view.replay.ask(key, self._answered(at, key))
        return not self._asked

    def _covers(self, at: At, key: BlockKey) -> bool:
        block = self._blocks.get(at)
        if block is not None and key[-1] < block.end:
            return True
        self._blocks.pop(at, None)
        return False

    def _answered(self, at: At, key: BlockKey) -> Callable[[Answer], None]:
        def on_answer(answer: Answer) -> None:
            self._asked.discard(at)
            if not self._view.has(self):
                return
            match answer:
                case Block() if answer.end > key[-1]:
                    self._blocks[at] = answer
                case Gone():
                    if self._reader is None or not self._reader.has_moved:
                        self._view.lose(self, Lost(at))
                        return
                    # Its subscribers get what comes before, then stand where the range is lost.
                    self._left_out.add(at)
                case _:
                    self._left_out.add(at)
            if not self._asked:
                self._view.continue_(self)

        return on_answer
