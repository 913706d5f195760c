"""A view: one subscription in one encoding, for all who have it, with its cohorts and its chunks.

A filter is evaluated once per event for all who stand at the same place, and what is shown is
encoded once. A view with nothing to do costs nothing: it is touched when records of its streams
come, and only if somebody waits for them; an indexed one only when the index
(`edgewake.cloud.log.following.fan_out`) finds something for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, Generic, Protocol, TypeVar, cast

from edgewake.cloud.log.chunks import CHUNK_OVERHEAD_BYTES, Chunk, Chunks, Key
from edgewake.cloud.log.decode import Decoder
from edgewake.cloud.log.following.block_slots import BlockSlots
from edgewake.cloud.log.following.cohort import Cohort, Lost, Member
from edgewake.cloud.log.following.fan_out import Candidate, Lookout
from edgewake.cloud.log.following.subscriber import Subscriber, ViewEnded, ViewFailed
from edgewake.cloud.log.following.turns import IsTimeUp, Turns
from edgewake.cloud.log.reader import CHUNK_BYTES, Batch, Reader, Step
from edgewake.cloud.log.replay import Replay
from edgewake.cloud.log.subscription import Plan, Positions
from edgewake.cloud.log.tail import Tail
from edgewake.protocol.clock import Clock

log = logging.getLogger("edgewake.hub")

C_co = TypeVar("C_co", covariant=True)
C = TypeVar("C")
_numbers: Final = count()
MISSED_MAX: Final = 32
"""Events that are kept for a view whose subscribers are on their way, a KB each; with more they
read by themselves, each all that came since."""


class Encoding(Protocol[C_co]):
    """Turns the events of a view into the bytes that its subscribers get.

    Of one `name` and plan all must make the same.
    """

    @property
    def name(self) -> str:
        """Tells encodings apart."""

    @property
    def event_bytes(self) -> int:
        """Bytes that an event needs beside its data."""

    def encode(self, batch: Batch) -> tuple[C_co, int]:
        """The content of a batch with at least one event, and its bytes."""


@dataclass(frozen=True)
class Shared:
    """What all views of a hub share."""

    decoder: Decoder
    replay: Replay
    block_slots: BlockSlots
    chunks: Chunks
    turns: Turns
    clock: Clock
    horizon: Callable[[], int]
    """The order up to which records may be read: those of the tick that is being gathered come with
    the tick."""
    call_later: Callable[[float, Callable[[], None]], object]
    on_cohorts: Callable[[int], None]
    """Told of cohorts more, or less, that read."""


class View(Generic[C]):
    """A subscription in one encoding. `tails[stream][partition]` are the hub's own."""

    def __init__(
        self,
        plan: Plan,
        tails: Sequence[Sequence[Tail]],
        encoding: Encoding[C],
        shared: Shared,
        *,
        on_empty: Callable[[], None],
    ) -> None:
        self.plan = plan
        self.encoding = encoding
        self.replay = shared.replay
        self.block_slots = shared.block_slots
        self.horizon = shared.horizon
        self.call_later = shared.call_later
        self.ended: ViewEnded | None = None
        self.subscribers: set[Subscriber[C]] = set()
        self.chunks_made = 0
        self._number = next(_numbers)
        self._tails = tails
        self._shared = shared
        self._on_empty = on_empty
        self._cohorts: dict[Key, Cohort] = {}
        self._parked: set[Cohort] = set()
        self._covered: set[Cohort] = set()
        """Parked ones that are woken only for what the index finds."""
        self.lookout: Lookout | None = None
        """The index of an indexed view; set before its first subscriber."""
        self._rest_key: Key | None = None
        """Where nothing is left to read but `_missed`, until records come that show something."""
        self._missed: list[Candidate] = []
        """What the index has found since then while nobody was there to get it."""
        self._missed_end: Positions = ()
        """How far the index had looked when it found the last of it."""
        self._live_key: Key | None = None
        """Where the latest chunk of new records ended."""
        self._members = plan.members()

    @property
    def end_key(self) -> Key | None:
        """Where nothing is left to read."""
        return None if self._missed else self._rest_key

    def key(self, positions: Positions) -> Key:
        """The canonical form of positions."""
        rows = zip(self._tails, positions, strict=True)
        return tuple(
            tuple(tail.canonical(position) for tail, position in zip(tails, row, strict=True))
            for tails, row in rows
        )

    def chunk(self, key: Key) -> Chunk[C] | None:
        """The chunk that begins there, if it is at hand."""
        found = self._shared.chunks.get(self._number, key, self._shared.clock.monotonic_s())
        return cast("Chunk[C] | None", found)

    def subscribe(self, positions: Positions, wake: Callable[[], None]) -> Subscriber[C]:
        """A subscriber that begins at `positions`."""
        subscriber = Subscriber(self, positions, wake)
        self.subscribers.add(subscriber)
        return subscriber

    def join(self, subscriber: Subscriber[C], key: Key, positions: Positions) -> Cohort:
        """Have the chunk made that begins at `key`."""
        cohort = self._cohorts.get(key)
        if cohort is None:
            cohort = self._cohorts[key] = Cohort(self, key, positions)
            if key == self.end_key:
                cohort.is_parked = True
                if self.lookout is not None:  # nothing was shown since
                    cohort.positions = self.lookout.moved(positions)
                self._rest(cohort)
            elif key == self._rest_key:
                self._catch_up(cohort)
            elif self.lookout is not None and self.lookout.is_yet_to_look(positions):
                cohort.is_parked = True
                self._rest(cohort)
            else:
                self._start(cohort, live=key == self._live_key)
        cohort.subscribers.add(subscriber)
        return cohort

    def positions_of(self, cohort: Cohort) -> Positions:
        """Where a cohort stands: a covered one is wherever the index has come to."""
        if self.lookout is not None and cohort in self._covered:
            cohort.positions = self.lookout.moved(cohort.positions)
        return cohort.positions

    def left(self, cohort: Cohort) -> None:
        """A subscriber left the cohort; a cohort without subscribers is removed."""
        if cohort.is_parked and not cohort.subscribers and self.has(cohort):
            del self._cohorts[cohort.key]
            self._parked.discard(cohort)
            self._covered.discard(cohort)

    def leave(self, subscriber: Subscriber[C]) -> None:
        """One subscriber less; the last one takes the view with it."""
        self.subscribers.discard(subscriber)
        if not self.subscribers:
            self._on_empty()

    def on_records(self) -> None:
        """Records of its streams came: who waits for them goes on."""
        self._set_rest(None)
        parked, self._parked = self._parked, set()
        for cohort in parked:
            if cohort.subscribers:
                cohort.is_parked = False
                self._start(cohort, live=True)
            else:
                self._cohorts.pop(cohort.key, None)

    def on_found(self, found: Sequence[Candidate], end: Positions, end_key: Key) -> None:
        """What the index found: all that those who are covered may be shown before `end`."""
        covered = list(filter(self._has_come_along, list(self._covered)))
        if not covered and self._rest_key is not None:
            self._miss(found, end)
            return
        self._set_rest(None)
        try:
            for cohort in covered:
                self._hand_out(cohort, found, end, end_key)
        except Exception as error:
            # A filter that fails on some value, or an encoding: it must not reach other views.
            self.fail(error)

    def uncover(self, which: Callable[[Positions], bool] = lambda _: True) -> None:
        """Let covered cohorts that stand there read on by themselves."""
        self._set_rest(None)
        for cohort in list(filter(self._has_come_along, list(self._covered))):
            if not which(cohort.positions):
                continue
            self._covered.discard(cohort)
            cohort.is_parked = False
            self._start(cohort, live=True)

    def is_outdated(self) -> bool:
        """Has a named set changed that its filters use?"""
        return bool(self._members) and self.plan.members() != self._members

    def renew(self) -> None:
        """Named sets changed: chunks that were made are no more, and nobody looks for it."""
        self._members = self.plan.members()
        self._number = next(_numbers)
        self.uncover()
        self.lookout = None

    def end(self, error: ViewEnded) -> None:
        """No more comes."""
        if self.ended is None:
            self.ended = error
            at_rest = len(self._parked) + len(self._covered)
            self._shared.on_cohorts(at_rest - len(self._cohorts))
            for subscriber in self.subscribers:
                subscriber.deliver(None)
            for cohort in self._cohorts.values():
                cohort.release()
            self._cohorts.clear()
            self._parked.clear()
            self._covered.clear()
            self._wake(list(self.subscribers), live=True)

    # For its cohorts.

    def reader(self, positions: Positions) -> Reader:
        """A reader for the chunk that begins there."""
        return Reader(
            self.plan,
            self._tails,
            self._shared.decoder,
            positions,
            event_bytes=self.encoding.event_bytes,
        )

    def has(self, cohort: Cohort) -> bool:
        """Is the cohort one of this view's still?"""
        return self._cohorts.get(cohort.key) is cohort

    def finish(
        self, cohort: Cohort, batch: Batch, *, is_at_end: bool, end_key: Key | None = None
    ) -> None:
        """Finish a cohort's chunk; with `is_at_end` nothing is left after it.

        `end_key`: the canonical form of its end, where that is known.
        """
        content, size = self.encoding.encode(batch) if batch.steps else (None, 0)
        size += CHUNK_OVERHEAD_BYTES
        now = self._shared.clock.monotonic_s()
        chunk = Chunk(
            cohort.key,
            batch.start,
            batch.end,
            end_key or self.key(batch.end),
            content,
            len(batch.steps),
            size,
            now,
        )
        if chunk.next_key != cohort.key:  # else whoever asks for it comes back to it for ever
            self._shared.chunks.put(self._number, cast("Chunk[object]", chunk))
        self.chunks_made += 1
        if is_at_end:
            self._note_end(chunk.next_key, batch.end)
        if cohort.is_live:
            self._live_key = chunk.next_key
        if content is None:
            self._move_on(cohort, chunk, is_at_end=is_at_end)
        else:
            self._deliver(cohort, chunk)

    def lose(self, cohort: Cohort, lost: Lost) -> None:
        """Tell that a cohort's range is not kept any more."""
        self._deliver(cohort, lost)

    def fail(self, error: Exception) -> None:
        """The subscription cannot be served: its subscribers end, all others go on."""
        facts = {
            "event": "view.failed",
            "streams": list(self.plan.subscription.streams),
            "error": repr(error)[:200],
        }
        log.error("a subscription failed and is ended: %r", error, extra=facts, exc_info=error)
        failed = ViewFailed(f"{type(error).__name__}: {error}")
        failed.__cause__ = error
        self.end(failed)

    def park(self, cohort: Cohort) -> None:
        """A cohort has read everything that can be read now."""
        self._shared.on_cohorts(-1)
        self._rest(cohort)
        if not cohort.is_at_live_end:
            return
        self._note_end(cohort.key, cohort.positions)
        # Who was behind is live now, and may want to know.
        self._wake(list(cohort.subscribers), live=False)

    def unpark(self, cohort: Cohort) -> None:
        """A parked cohort may have something to read."""
        if cohort in self._parked or cohort in self._covered:
            cohort.positions = self.positions_of(cohort)
            self._parked.discard(cohort)
            self._covered.discard(cohort)
            self._start(cohort, live=False)

    def continue_(self, cohort: Cohort) -> None:
        """A cohort that waited for blocks has them."""
        self._shared.turns.add(cohort.work, live=cohort.is_live)

    def forget(self, cohort: Cohort) -> None:
        """A cohort without subscribers."""
        if self._cohorts.get(cohort.key) is cohort:
            del self._cohorts[cohort.key]
            cohort.release()
            self._shared.on_cohorts(-1)

    def _note_end(self, key: Key, positions: Positions) -> None:
        """Nothing is left to read there now.

        Whoever comes there waits wherever the index has come to. So an index that began further on,
        at records that nobody may read before their tick, does not end there.
        """
        is_covered = self.lookout is None or self.lookout.covers(positions)
        self._set_rest(key if is_covered else None)

    def _set_rest(self, key: Key | None) -> None:
        self._rest_key = key
        self._missed = []

    def _miss(self, found: Sequence[Candidate], end: Positions) -> None:
        """Keep what was found while all subscribers are on their way, e.g. write what they got.

        With too much for that they read by themselves.
        """
        self._missed += found
        self._missed_end = end
        if len(self._missed) > MISSED_MAX:
            self._set_rest(None)

    def _catch_up(self, cohort: Cohort) -> None:
        """Make a chunk of what was missed, for a cohort that comes back to where it was missed."""

        def hand_out(is_time_up: IsTimeUp) -> bool:
            is_there = self.has(cohort) and bool(cohort.subscribers)
            if not is_there or self.lookout is None or cohort.key != self._rest_key:
                return cohort.work(is_time_up)
            found, looked = self._missed, self.lookout.moved(self._missed_end)
            end = _furthest(cohort.positions, looked)
            try:
                steps = self._shown(cohort, found)
                if steps is None:
                    return cohort.work(is_time_up)
                if steps:
                    self.finish(cohort, Batch(cohort.positions, end, steps), is_at_end=True)
                    return False
            except Exception as error:  # as in `on_found`
                self.fail(error)
                return False
            # Nothing of it was for who comes back, e.g. because it was read before it was found.
            self._missed = []
            cohort.positions, cohort.is_parked = end, True
            self._shared.on_cohorts(-1)
            self._rest(cohort)
            self._wake(list(cohort.subscribers), live=False)
            return False

        cohort.is_live = True
        self._shared.on_cohorts(1)
        self._shared.turns.add(hand_out, live=True)

    def _rest(self, cohort: Cohort) -> None:
        """Let a cohort wait for records.

        Where the index has not passed it, only for those that show it something.
        """
        if self.lookout is None:
            self._parked.add(cohort)
        elif self.lookout.covers(cohort.positions):
            self._covered.add(cohort)
        else:
            self._parked.add(cohort)
            self.lookout.call()

    def _has_come_along(self, cohort: Cohort) -> bool:
        """Move a covered cohort to the index' position; False where it is gone or merged there."""
        positions = self.positions_of(cohort)
        if not cohort.subscribers:
            self.left(cohort)
            return False
        key = None if self.lookout is None else self.lookout.key_of(positions)
        if key is None:
            key = self.key(positions)
        if key == cohort.key:
            return True
        there = self._cohorts.setdefault(key, cohort)
        del self._cohorts[cohort.key]
        if there is not cohort:
            self._covered.discard(cohort)
            self._merge(cohort, there)
            return False
        cohort.key = key
        return True

    def _hand_out(
        self, cohort: Cohort, found: Sequence[Candidate], end: Positions, end_key: Key
    ) -> None:
        """Make the chunk of what was found for a covered cohort.

        With too much for one it reads on by itself.
        """
        steps = self._shown(cohort, found)
        if steps == []:
            return
        self._covered.discard(cohort)
        cohort.is_parked = False
        if steps is None:
            self._start(cohort, live=True)
            return
        cohort.is_live = True
        self._shared.on_cohorts(1)
        ahead = _furthest(cohort.positions, end)
        batch = Batch(cohort.positions, ahead, steps)
        self.finish(cohort, batch, is_at_end=True, end_key=end_key if ahead == end else None)

    def _shown(self, cohort: Cohort, found: Sequence[Candidate]) -> list[Step] | None:
        """What of it is shown to a cohort; None: too much for one chunk."""
        steps: list[Step] = []
        room = CHUNK_BYTES
        for one in found:
            if one.before >= cohort.positions[one.stream][one.partition]:
                shown = self.plan.show(one.event, one.stream)
                if shown is not None:
                    steps.append(Step(shown, one.stream, one.partition, one.after))
                    room -= len(shown.data) + self.encoding.event_bytes
                    if room <= 0:
                        return None
        return steps

    def _start(self, cohort: Cohort, *, live: bool) -> None:
        cohort.is_live = live
        self._shared.on_cohorts(1)
        self._shared.turns.add(cohort.work, live=live)

    def _move_on(self, cohort: Cohort, chunk: Chunk[C], *, is_at_end: bool) -> None:
        """A chunk shows nothing: its cohort stands behind it now, without waking anybody."""
        del self._cohorts[cohort.key]
        cohort.move_on(chunk.next_key, chunk.end)
        there = self._cohorts.setdefault(cohort.key, cohort)
        if there is not cohort:
            self._merge(cohort, there)
            self._shared.on_cohorts(-1)
            return
        was_live = cohort.is_live
        if is_at_end:
            cohort.is_parked = True
            cohort.release()
            self._shared.on_cohorts(-1)
            self._rest(cohort)
            if not was_live:
                self._wake(list(cohort.subscribers), live=False)
        else:
            self._shared.turns.add(cohort.work, live=was_live)

    @staticmethod
    def _merge(cohort: Cohort, there: Cohort) -> None:
        """All who waited in a cohort wait in another one at the same place."""
        for subscriber in cohort.subscribers:
            subscriber.move_to(there)
        there.subscribers |= cohort.subscribers
        cohort.subscribers.clear()
        cohort.release()

    def _deliver(self, cohort: Cohort, item: Chunk[C] | Lost) -> None:
        self.forget(cohort)
        subscribers = list(cohort.subscribers)
        cohort.subscribers.clear()
        for subscriber in subscribers:
            subscriber.deliver(item)
        self._wake(subscribers, live=cohort.is_live)

    def _wake(self, subscribers: list[Member], *, live: bool) -> None:
        def wake(is_time_up: IsTimeUp) -> bool:
            while subscribers:
                subscribers.pop().wake()
                if is_time_up():
                    break
            return bool(subscribers)

        if subscribers:
            self._shared.turns.add(wake, live=live)


def _furthest(one: Positions, other: Positions) -> Positions:
    """The position of each partition that is further on."""
    return tuple(tuple(map(max, *rows)) for rows in zip(one, other, strict=True))
