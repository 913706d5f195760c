"""A subscriber: one reader of a view and where it stands. It pulls; nothing is queued for it.

`next` gives the chunk that begins where it stands, and moves it to the chunk's end; without one at
hand it joins the cohort there, and `wake` is called when to ask again. Chunks that show nothing are
passed without a word. Who does not ask costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from edgewake.cloud.log.chunks import Chunk, Key
from edgewake.cloud.log.following.cohort import Cohort, Lost
from edgewake.cloud.log.reader import At
from edgewake.cloud.log.subscription import Plan, Positions
from edgewake.protocol.cursor import Position

C = TypeVar("C")


class ViewEnded(Exception):
    """The view has ended: a stream was recreated or lost. Open again with the cursor."""


class ViewFailed(ViewEnded):
    """The subscription cannot be served: its filter or encoding failed on an event."""


class Subscribed(Protocol[C]):
    """What a subscriber needs of its view."""

    plan: Plan
    ended: ViewEnded | None

    @property
    def end_key(self) -> Key | None:
        """Where nothing is left to read."""

    def key(self, positions: Positions) -> Key:
        """The canonical form of positions."""

    def chunk(self, key: Key) -> Chunk[C] | None:
        """The chunk that begins there, if it is at hand."""

    def join(self, subscriber: Subscriber[C], key: Key, positions: Positions) -> Cohort:
        """Have the chunk made that begins at `key`."""

    def positions_of(self, cohort: Cohort) -> Positions:
        """Where one of its cohorts stands."""

    def left(self, cohort: Cohort) -> None:
        """A subscriber of the cohort left it."""

    def leave(self, subscriber: Subscriber[C]) -> None:
        """Remove a subscriber."""


class Planned(Protocol):
    """A view, as far as its plan goes."""

    plan: Plan


class Standing(Protocol):
    """Who reads a view and can be moved behind a range that is lost."""

    @property
    def view(self) -> Planned:
        """The view that the subscriber reads."""

    @property
    def positions(self) -> Positions:
        """The positions behind the last event that was given."""

    def skip(self, at: At, offset: int) -> Position:
        """Go to `offset` in one partition, unread; the position before."""


class Subscriber(Generic[C]):
    """Made by `Hub.subscribe`; `close` it.

    `wake` is called in the event loop and may call `next`.
    """

    def __init__(self, view: Subscribed[C], positions: Positions, wake: Callable[[], None]) -> None:
        self.view = view
        self.wake = wake
        self._positions = positions
        self._key = view.key(positions)
        self._cohort: Cohort | None = None
        self._delivered: Chunk[Any] | Lost | None = None

    @property
    def positions(self) -> Positions:
        """Where it stands: a cohort that is shown nothing moves on with all its subscribers."""
        if self._cohort is None:
            return self._positions
        return self.view.positions_of(self._cohort)

    @property
    def place(self) -> tuple[int, Key]:
        """Its view and where it stands: who stands at the same place costs nothing more."""
        return id(self.view), self._key if self._cohort is None else self._cohort.key

    @property
    def is_live(self) -> bool:
        """Does it wait for new records, having passed all that there are?"""
        return self._cohort is not None and self._cohort.is_at_live_end

    @property
    def is_at_end(self) -> bool:
        """Has it passed all that there is?"""
        return self.is_live or (self._cohort is None and self._key == self.view.end_key)

    def next(self) -> Chunk[C] | Lost | None:
        """What comes next. Raises ViewEnded.

        A chunk with content, which it stands behind now; a lost range, which it must `skip`; None:
        nothing is at hand, and `wake` will be called.
        """
        if self.view.ended is not None:
            raise self.view.ended.with_traceback(None)
        if self._cohort is not None:
            return None
        while True:
            item = self._delivered or self.view.chunk(self._key)
            self._delivered = None
            if item is None:
                self._cohort = self.view.join(self, self._key, self._positions)
                return None
            if isinstance(item, Lost):
                return item
            self._positions, self._key = item.end, item.next_key
            if item.content is not None:
                return item

    def skip(self, at: At, offset: int) -> Position:
        """Go to `offset` in one partition, unread; the position before."""
        self._leave_cohort()
        before = self._positions[at[0]][at[1]]
        row = list(self._positions[at[0]])
        row[at[1]] = (offset, 0)
        self._move((*self._positions[: at[0]], tuple(row), *self._positions[at[0] + 1 :]))
        return before

    def deliver(self, item: Chunk[Any] | Lost | None) -> None:
        """The cohort is over; with None the view is. The view wakes its subscribers."""
        if self._cohort is not None:
            self._positions = self.view.positions_of(self._cohort)
            self._key = self._cohort.key
            self._cohort = None
        self._delivered = item

    def move_to(self, cohort: Cohort) -> None:
        """Two cohorts met."""
        self._cohort = cohort

    def close(self) -> None:
        """Leave the view."""
        self._leave_cohort()
        self.view.leave(self)

    def _move(self, positions: Positions) -> None:
        self._positions = positions
        self._key = self.view.key(positions)

    def _leave_cohort(self) -> None:
        self._delivered = None
        if self._cohort is not None:
            self._positions = self.view.positions_of(self._cohort)
            self._key = self._cohort.key
            self._cohort.subscribers.discard(self)
            self.view.left(self._cohort)
            self._cohort = None
