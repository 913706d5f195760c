"""What one WebSocket subscription reads: chunks of the hub, cut where its credits end."""

from __future__ import annotations

from collections.abc import Callable

from edgewake.cloud.access import socket_wire as wire
from edgewake.cloud.access.slow.treated import Slots, Treated
from edgewake.cloud.access.socket_wire import Shown
from edgewake.cloud.held_bytes import Account
from edgewake.cloud.log.chunks import Chunk
from edgewake.cloud.log.following.behind import Behind
from edgewake.cloud.log.following.cohort import Lost
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.request import OnGap
from edgewake.cloud.log.subscription import Gap, Plan, Positions, Start
from edgewake.cloud.log.wanted import Pace
from edgewake.protocol.clock import Clock


class Reading:
    """Owns `plan` from the call on; `close` it. Raises Full or Unavailable."""

    def __init__(
        self,
        hub: Hub,
        plan: Plan,
        start: Start,
        wake: Callable[[], None],
        *,
        pace: Pace,
        account: Account,
        clock: Clock,
    ) -> None:
        self.plan = plan
        self._hub = hub
        self._encoder = wire.Encoder(hub.codec, plan)
        self._subscriber = Treated(
            hub, plan, self._encoder, start.positions, wake, pace=pace, account=account, clock=clock
        )
        self._held: Chunk[Shown] | None = None
        """A chunk of which not all was taken."""
        self._taken = 0
        """Events of it that were."""

    @property
    def place(self) -> object:
        """Equal for all who stand at the same place."""
        return self._subscriber.place

    @property
    def is_live(self) -> bool:
        """Does it wait for new records, having taken all that there are?"""
        return self._held is None and self._subscriber.is_live

    @property
    def positions(self) -> Positions:
        """The positions behind the last event that was read."""
        if self._held is None or self._held.content is None:
            return self._subscriber.positions
        return self._held.content.positions(self._held.start, self._taken)

    def cursor(self) -> str:
        """The cursor behind the last event that was read."""
        return self._encoder.cursor(self.positions)

    def next(self, most: int | None) -> tuple[bytes, int] | Lost | None:
        """The texts of the next events, `most` at most, and how many they are.

        A lost range instead, or None where nothing is at hand. Raises ViewEnded.
        """
        if self._held is None:
            item = self._subscriber.next(most)
            if item is None or isinstance(item, Lost):
                return item
            self._held, self._taken = item, 0
        shown = self._held.content
        assert shown is not None
        first, last = self._taken, len(shown.ends)
        if most is not None:
            last = min(last, first + most)
        texts = shown.part(first, last)
        self._taken = last
        if last == len(shown.ends):
            self._held = None
        return texts, last - first

    def superseded(self) -> int:
        """Events that others took the place of since this was asked last."""
        return self._subscriber.superseded()

    async def gap(self, lost: Lost, on_gap: OnGap) -> Gap:
        """Go on behind a range that is lost. Raises Unavailable."""
        return await self._hub.gap(self._subscriber, lost, on_gap)

    def behind(self) -> Behind:
        """How far it is behind; nothing where its view ends at the next event."""
        return self._subscriber.behind(self.positions)

    def likely_events(self, records: int) -> int | None:
        """How many events `records` are to it."""
        return self._subscriber.likely_events(records)

    def skip(self) -> list[Gap]:
        """Go on at the live end; the gaps to announce. None where it cannot be moved now."""
        gaps = self._subscriber.skip_to_live(self.positions)
        if gaps:
            self._held = None
        return gaps

    def conflate(self, slots: Slots, client: str) -> bool:
        """Give the latest of each thing alone until that is all there is.

        False where that cannot be done now.
        """
        is_done = self._subscriber.conflate(self.positions, slots, client)
        if is_done:
            self._held = None
        return is_done

    def close(self) -> None:
        """Leave the hub."""
        self._held = None
        self._subscriber.close()
        self._hub.close(self.plan)
