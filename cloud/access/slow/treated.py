"""A reader of the hub that goes on in another way while it is too slow.

It goes on at the live end, or is given the latest of each thing alone.

Conflation is that of `edgewake.cloud.access.paced`: it begins where the reader stands, holds the
newest of each thing, and ends when all of that was given. Then the reader has every event again.

    SLOTS       conflations at a time, a fourth of them for one address: each holds up to
                `paced.HELD_BYTES_MAX`; a reader that finds none free waits
    EVERY_MS    how often the latest of each thing is given
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Generic, TypeVar

from edgewake.cloud.access import paced
from edgewake.cloud.access.paced import Paced
from edgewake.cloud.access.slow.policy import likely_events
from edgewake.cloud.client_share import Bound
from edgewake.cloud.held_bytes import Account
from edgewake.cloud.log.chunks import Chunk
from edgewake.cloud.log.following.behind import Behind
from edgewake.cloud.log.following.cohort import Lost
from edgewake.cloud.log.following.subscriber import Planned, Subscriber
from edgewake.cloud.log.following.view import Encoding
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.reader import At
from edgewake.cloud.log.resume import skipped_gap
from edgewake.cloud.log.subscription import Gap, Plan, Positions
from edgewake.cloud.log.wanted import Pace
from edgewake.protocol.clock import Clock
from edgewake.protocol.cursor import Position
from edgewake.protocol.errors import Unavailable

SLOTS: Final = 64
EVERY_MS: Final = 1000

C = TypeVar("C")


class Slots:
    """Who holds one of the SLOTS."""

    def __init__(self, share: float) -> None:
        self._bound = Bound("conflations", SLOTS, share)
        self._held: Counter[str] = Counter()

    def take(self, client: str) -> bool:
        """One for an address, if one is free for it. `give_back` it."""
        held = self._held[client]
        if self._bound.refusal(total=self._held.total(), held=held) is not None:
            return False
        self._held[client] += 1
        return True

    def give_back(self, client: str) -> None:
        """It is needed no more."""
        self._held[client] -= 1
        if self._held[client] <= 0:
            del self._held[client]


class Treated(Generic[C]):
    """Skips or conflates while it is too slow. As a `Subscriber`, which it owns; `close` it.

    Raises Full or Unavailable where the hub cannot serve the plan.
    """

    def __init__(
        self,
        hub: Hub,
        plan: Plan,
        encoding: Encoding[C],
        positions: Positions,
        wake: Callable[[], None],
        *,
        pace: Pace,
        account: Account,
        clock: Clock,
    ) -> None:
        self._account = account
        self._hub, self._plan, self._encoding = hub, plan, encoding
        self._wake, self._pace, self._clock = wake, pace, clock
        self._inner = self._subscribed(positions, pace)
        self._frees: Callable[[], None] | None = None
        """Gives back its slot while it is conflated because it is slow."""
        self._shown = 0
        """Events that it was given …"""
        self._counted_from = positions
        """… since here."""

    def _subscribed(self, positions: Positions, pace: Pace) -> Subscriber[C] | Paced[C]:
        return paced.subscribe(
            self._hub,
            self._plan,
            self._encoding,
            positions,
            self._wake,
            pace=pace,
            account=self._account,
            clock=self._clock,
        )

    @property
    def view(self) -> Planned:
        """What it reads."""
        return self._inner.view

    @property
    def positions(self) -> Positions:
        """Where it stands."""
        return self._inner.positions

    @property
    def place(self) -> object:
        """Equal for all who stand at the same place."""
        return self._inner.place

    @property
    def is_live(self) -> bool:
        """Has it been given all that there is?"""
        return self._inner.is_live

    def next(self, most: int | None = None) -> Chunk[C] | Lost | None:
        """As `Subscriber.next`. With a pace `most` events. Raises ViewEnded."""
        found = self._pulled(most)
        if found is None and self._frees is not None and self._inner.is_live:
            if self._go_on(self._inner.positions, self._pace):
                self._give_back()
            return self._pulled(most)
        if isinstance(found, Chunk):
            self._shown += found.events
        return found

    def _pulled(self, most: int | None) -> Chunk[C] | Lost | None:
        if isinstance(self._inner, Paced):
            return self._inner.next(most)
        return self._inner.next()

    def superseded(self) -> int:
        """Events that others took the place of since this was asked last."""
        return paced.superseded(self._inner)

    def skip(self, at: At, offset: int) -> Position:
        """As `Subscriber.skip`."""
        self._counted_from, self._shown = self.positions, 0
        return self._inner.skip(at, offset)

    def behind(self, positions: Positions) -> Behind:
        """How far a reader that stands there is behind.

        Nothing where its view ends at the next event.
        """
        with contextlib.suppress(Unavailable):
            return self._hub.behind(self._plan, positions)
        return Behind(0, 0.0)

    def likely_events(self, records: int) -> int | None:
        """How many events `records` are to it; None where nothing tells."""
        return likely_events(records, self._shown, self._counted_from, self.positions)

    def skip_to_live(self, start: Positions) -> list[Gap]:
        """Go on at the live end; returns the gaps to announce, from `start` on.

        There is one for each partition, with the cursor in which what was announced so far has
        moved. The list is empty where it cannot be moved at the moment.
        """
        try:
            live = self._hub.live(self._plan)
        except Unavailable:
            return []  # its view ends at the next event
        if isinstance(self._inner, Paced):
            self._inner.let_go()
        gaps: list[Gap] = []
        rows = [list(row) for row in start]
        for i, ends in enumerate(live):
            for partition, (to, _) in enumerate(ends):
                before = rows[i][partition]
                if before[0] < to:
                    self._inner.skip((i, partition), to)
                    rows[i][partition] = (to, 0)
                    event = skipped_gap(self._plan.sources[i].name, partition, before, to)
                    gaps.append(Gap(event, self._plan.cursor(tuple(map(tuple, rows)))))
        self._count_from_here()
        return gaps

    def conflate(self, start: Positions, slots: Slots, client: str) -> bool:
        """Give the latest of each thing alone from `start` on, until that is all there is.

        False where it is done already, or cannot be done at the moment.
        """
        if self._pace.conflate_ms is not None or self._frees is not None:
            return False
        if not slots.take(client):
            return False
        if not self._go_on(start, replace(self._pace, conflate_ms=EVERY_MS)):
            slots.give_back(client)
            return False
        self._frees = lambda: slots.give_back(client)
        return True

    def _go_on(self, positions: Positions, pace: Pace) -> bool:
        try:
            found = self._subscribed(positions, pace)
        except Unavailable:
            return False
        self._inner.close()
        self._inner = found
        self._count_from_here()
        return True

    def _count_from_here(self) -> None:
        self._shown, self._counted_from = 0, self.positions

    def _give_back(self) -> None:
        frees, self._frees = self._frees, None
        if frees is not None:
            frees()

    def close(self) -> None:
        """Leave the view."""
        self._give_back()
        self._inner.close()
