"""Reads events at a pace: the latest of each thing per period (conflation), or N a second.

It stands between a subscriber of the hub and who writes: while nothing is due nothing is pulled,
and who pulls nothing costs nothing. What is pulled is held by thing, the newest in the place of the
one before; of what is held the oldest goes first. So a cursor is exact: behind an event that was
given lies everything that was not, and of each thing the latest comes, however often its reader is
cut off. How many events others took the place of is counted and told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

from edgewake.cloud.held_bytes import Account
from edgewake.cloud.log.chunks import Chunk
from edgewake.cloud.log.decode import DATA, WATERMARK, Event
from edgewake.cloud.log.following.cohort import Lost
from edgewake.cloud.log.following.subscriber import Subscriber
from edgewake.cloud.log.following.view import Encoding
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.reader import At, Batch, Step
from edgewake.cloud.log.steps import Steps
from edgewake.cloud.log.subscription import Plan, Positions
from edgewake.cloud.log.wanted import Pace
from edgewake.protocol.clock import Clock
from edgewake.protocol.cursor import Position

HELD_MAX: Final = 10_000
"""Things held for one reader; with more the rest is not pulled before these are given."""
HELD_BYTES_MAX: Final = 1024 * 1024
"""Bytes of their events. Over it: as above."""
NO_ROOM_S: Final = 1.0
"""Until a reader whose client holds its share asks again."""
GIVEN_BYTES_MAX: Final = 64 * 1024
"""Bytes of events given at once."""
LEAST_WAIT_S: Final = 0.02
"""Between two pieces: one tick of the hub."""

C = TypeVar("C")
CallLater: TypeAlias = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


def thing_of(plan: Plan, stream: int, event: Event, per: tuple[str, ...]) -> Hashable:
    """What an event of the n-th stream is about; None where nothing takes its place.

    Nothing does where its reader may not see by what its results are told apart.
    """
    if event.kind == WATERMARK:
        return stream, WATERMARK
    if event.kind != DATA:
        return None
    if not per and not plan.tells_things(stream):
        return None
    fields = event.fields if event.unselected is None else event.unselected
    return stream, *(_hashable(fields.get(name)) for name in per or plan.per[stream])


def _hashable(value: Any) -> Hashable:
    """A value of JSON by which things are told apart: TRUE is not 1."""
    if isinstance(value, Mapping | list):
        return repr(value)
    return type(value), value


class Held:
    """Events that wait to be given, by thing, in their order. Pure."""

    def __init__(self, plan: Plan, pace: Pace, account: Account) -> None:
        self._plan = plan
        self._pace = pace
        self._account = account
        self._steps: dict[Hashable, Step] = {}
        """At most HELD_MAX and a chunk's."""
        self._bytes = 0
        self._numbers = 0
        self.superseded = 0
        """Events that a later one took the place of, and that was not told yet."""

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def is_full(self) -> bool:
        """Should nothing be added now?"""
        is_over = len(self._steps) >= HELD_MAX or self._bytes >= HELD_BYTES_MAX
        return is_over or not self._account.has_room

    def add(self, step: Step) -> None:
        """One more; an earlier one of the same thing gives way."""
        thing: Hashable = None
        if self._pace.conflate_ms is not None:
            thing = thing_of(self._plan, step.stream, step.event, self._pace.per)
        if thing is None:
            self._numbers += 1
            thing = self._numbers
        before = self._steps.get(thing)
        if before is not None:
            self._pop(thing)
            self.superseded += before.event.kind == DATA
        self._steps[thing] = step
        self._bytes += len(step.event.data)
        self._account.add(step.event.data)

    def drop(self) -> None:
        """Forget all of it."""
        for thing in list(self._steps):
            self._pop(thing)
        self.superseded = 0

    def take(self, most: int) -> list[Step]:
        """The oldest, `most` of them and GIVEN_BYTES_MAX at most."""
        found: list[Step] = []
        room = GIVEN_BYTES_MAX
        for thing in list(self._steps)[:most]:
            if room <= 0:
                break
            step = self._pop(thing)
            room -= len(step.event.data)
            found.append(step)
        return found

    def _pop(self, thing: Hashable) -> Step:
        step = self._steps.pop(thing)
        self._bytes -= len(step.event.data)
        self._account.take(step.event.data)
        return step


class Rate:
    """How many events may be given now: `max_rate` a second, a second's worth at once. Pure."""

    def __init__(self, rate: float | None, now: float) -> None:
        self._rate = rate
        self._credit = 1.0
        self._at = now

    def allowed(self, now: float) -> int | None:
        """How many events may be given now; None: all."""
        if self._rate is None:
            return None
        self._credit = min(max(1.0, self._rate), self._credit + (now - self._at) * self._rate)
        self._at = now
        return int(self._credit)

    def give(self, count: int) -> None:
        """Take `count` events that were given from the credit."""
        self._credit -= count

    @property
    def wait_s(self) -> float:
        """Seconds until one more may be given."""
        return 0.0 if self._rate is None else max(0.0, (1 - self._credit) / self._rate)


class Paced(Generic[C]):
    """Gives events at a pace. As a `Subscriber`, which it owns; `close` it.

    With conflation it goes in rounds: it takes in what there is until that is all (or a round is
    over, or it holds as much as it may), gives it, and is due again an interval later. After a
    longer pause a reader is given the next event at once.
    """

    def __init__(
        self,
        inner: Subscriber[Sequence[Step]],
        encoding: Encoding[C],
        pace: Pace,
        account: Account,
        *,
        wake: Callable[[], None],
        clock: Clock,
        call_later: CallLater,
    ) -> None:
        self.view = inner.view
        self._inner = inner
        self._encoding = encoding
        self._wake = wake
        self._clock = clock
        self._call_later = call_later
        self._every_s = None if pace.conflate_ms is None else pace.conflate_ms / 1000
        self._held = Held(inner.view.plan, pace, account)
        self._rate = Rate(pace.max_rate, clock.monotonic_s())
        self._due_at = clock.monotonic_s()
        """When the next round begins, monotonic seconds."""
        self._gathers_until: float | None = None
        self._given: Positions | None = None
        """Where it stands while something is held."""
        self._timer: asyncio.TimerHandle | None = None
        self._lacks_room = False
        """Does it take in nothing because of what its client holds?"""
        inner.wake = self._woken

    @property
    def positions(self) -> Positions:
        """Behind all that was given; before all that was not."""
        return self._inner.positions if self._given is None else self._given

    @property
    def place(self) -> object:
        """A place that no other subscriber shares."""
        return id(self)

    @property
    def is_live(self) -> bool:
        """Has it been given all, but for what its pace holds back?"""
        is_resting = self._timer is not None and not self._lacks_room
        return not self._held and (is_resting or self._inner.is_live)

    @property
    def is_at_end(self) -> bool:
        """Has it passed all that there is?"""
        return not self._held and self._inner.is_at_end

    def next(self, most: int | None = None) -> Chunk[C] | Lost | None:
        """As `Subscriber.next`, `most` events. Raises ViewEnded."""
        if self._timer is not None:
            return None
        if not self._held and self._held.is_full:
            self._lacks_room = True
            self._sleep(NO_ROOM_S)  # what its client holds is given meanwhile
            return None
        self._lacks_room = False
        now = self._clock.monotonic_s()
        lost = self._pull_one() if self._every_s is None else self._round(now, self._every_s)
        if self._gathers_until is not None:
            return None  # the hub wakes us
        if not self._held:
            if lost is None and now < self._due_at:
                self._sleep(self._due_at - now)
            return lost
        return self._give(now, most)

    def _pull_one(self) -> Lost | None:
        """Without conflation: the next chunk when the one before is given."""
        return None if self._held else self._take_in()[0]

    def _round(self, now: float, every_s: float) -> Lost | None:
        if self._gathers_until is None:
            if now < self._due_at:
                return None
            self._gathers_until = now + every_s
        lost, is_more = None, True
        while is_more and not self._held.is_full:
            lost, is_more = self._take_in()
        has_all = lost is not None or self._held.is_full or self._inner.is_live
        if not has_all and now < self._gathers_until:
            return None
        self._gathers_until = None
        if self._held:
            self._due_at = now + every_s
        return lost

    def _take_in(self) -> tuple[Lost | None, bool]:
        """Pull what is at hand: a range that is lost, and may there be more?"""
        before = self._inner.positions
        item = self._inner.next()
        if not isinstance(item, Chunk):
            return item, False
        if not self._held:
            self._given = before
        for step in item.content or ():
            self._held.add(step)
        return None, True

    def _give(self, now: float, most: int | None) -> Chunk[C] | None:
        allowed = self._rate.allowed(now)
        if allowed == 0:
            self._sleep(max(LEAST_WAIT_S, self._rate.wait_s))
            return None
        start = self.positions
        bounds = [len(self._held), *(bound for bound in (allowed, most) if bound is not None)]
        steps = self._held.take(min(bounds))
        self._rate.give(len(steps))
        self._given = moved(start, steps) if self._held else None
        end = self.positions
        content, size = self._encoding.encode(Batch(start, end, steps))
        return Chunk((), start, end, (), content, len(steps), size, now)

    def superseded(self) -> int:
        """Events that a later one took the place of, since this was asked last."""
        found, self._held.superseded = self._held.superseded, 0
        return found

    def skip(self, at: At, offset: int) -> Position:
        """As `Subscriber.skip`; nothing is held then."""
        return self._inner.skip(at, offset)

    def let_go(self) -> None:
        """Forget what is held, and stand behind it."""
        self._held.drop()
        self._given = None

    def close(self) -> None:
        """Leave the view."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._held.drop()
        self._inner.close()

    def _woken(self) -> None:
        if self._timer is None:
            self._wake()

    def _sleep(self, seconds: float) -> None:
        self._timer = self._call_later(seconds, self._awake)

    def _awake(self) -> None:
        self._timer = None
        self._wake()


def moved(start: Positions, steps: Sequence[Step]) -> Positions:
    """The positions behind these events."""
    rows = [list(row) for row in start]
    for step in steps:
        rows[step.stream][step.partition] = step.position
    return tuple(map(tuple, rows))


def subscribe(
    hub: Hub,
    plan: Plan,
    encoding: Encoding[C],
    positions: Positions,
    wake: Callable[[], None],
    *,
    pace: Pace,
    account: Account,
    clock: Clock,
) -> Subscriber[C] | Paced[C]:
    """As `Hub.subscribe`, for a reader with a pace."""
    if pace.is_free:
        return hub.subscribe(plan, encoding, positions, wake)
    inner = hub.subscribe(plan, Steps(), positions, wake)
    call_later = asyncio.get_running_loop().call_later
    return Paced(inner, encoding, pace, account, wake=wake, clock=clock, call_later=call_later)


def superseded(reader: Subscriber[Any] | Paced[Any]) -> int:
    """What is to be told of a reader since it was asked last; of one without a pace nothing."""
    return reader.superseded() if isinstance(reader, Paced) else 0
