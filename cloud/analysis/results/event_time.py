"""How far event time has come, from poll to poll. Pure.

It waits for what is still to be read and for what is still on its way. What is sent all at once, a
recording or what an outage kept back, is read by numbers of records, and its devices' readings come
side by side only within seconds. Two things therefore hold event time, for WAIT_MS by the clock at
most:

* A partition that still has records unread which were there at the poll before. A batch that was
  not cut off leaves none, so streams that are read as fast as they are written never wait. Where
  event time stood for a partition for so long, the rule of event_progress decides alone: a week
  that one device sends holds up nobody longer.
* Event time that is more than LIVE_MS behind the clock, which no live stream's is: it counts when
  it was reached that long ago.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from edgewake.cloud.analysis.results import event_progress

WAIT_MS: Final = 10_000
"""The longest wait: a batch of a backlog takes 2 s, and bridges and sequencers pass records on
within a second each."""
LIVE_MS: Final = 60_000
"""The lag of a live stream at most: devices that send immediately are seconds behind the clock, and
those that send in batches rarely more than a minute."""
STEP_MS: Final = 250
"""The step of event time while it is long past, ms, so that at most 40 of them are kept."""


@dataclass(slots=True)
class EventTime:
    """The event time of one lane, from its start on. Times are in ms, `now_ms` by one clock."""

    partitions: int
    """A partition that was added to a topic counts as new."""
    wait_ms: int = WAIT_MS
    _ends: dict[int, int] = field(default_factory=dict)
    """Partition → its end at the last poll."""
    _since: dict[int, int] = field(default_factory=dict)
    """Partition (one of `partitions`) → since when it has held event time."""
    _steps: deque[tuple[int, int]] = field(default_factory=deque)
    """When which long past event time was reached, bounded by STEP_MS. The last one that counts is
    kept."""
    behind: set[int] = field(default_factory=set)
    """Partitions (of `partitions`) that held event time at the last poll."""
    is_late: bool = False
    """Is it waiting because the readings are old?"""

    def after(
        self,
        before: int | None,
        *,
        tops: Mapping[int, int],
        received_at: Mapping[int, int],
        start: Mapping[int, int],
        reached: Mapping[int, int],
        left: Mapping[int, int] | None,
        oldest: int | None,
        now_ms: int,
    ) -> int | None:
        """Event time after a batch that read from `start` to `reached` (partition → offset).

        `left`: partition → unread records.

        `tops`, `received_at`: partition (one of `partitions`) → latest event time and reception of
        what was read of it; `oldest`: event time of the batch's oldest reading, where long past
        event time begins. Where Kafka does not say what is left, something is.
        """
        read = {
            partition % self.partitions
            for partition, offset in reached.items()
            if offset > start.get(partition, 0)
        }
        unread: dict[int, int] = {}
        for partition in reached:
            place = partition % self.partitions
            unread[place] = unread.get(place, 0) + (1 if left is None else left[partition])
        behind = event_progress.behind(unread, received_at, read, now_ms) | self._waited_for(
            before, tops, reached, left, now_ms
        )
        reached_ms = event_progress.progress(before, tops, behind)
        counting = self._counting(before, reached_ms, now_ms)
        self.behind, self.is_late = behind, counting != reached_ms
        return oldest if counting is None and reached_ms is not None else counting

    def _waited_for(
        self,
        before: int | None,
        tops: Mapping[int, int],
        reached: Mapping[int, int],
        left: Mapping[int, int] | None,
        now_ms: int,
    ) -> set[int]:
        """Partitions with unread records that were already there at the previous poll.

        Those that have held event time for too long are left out.
        """
        over = {
            partition % self.partitions
            for partition, offset in reached.items()
            if offset < self._ends.get(partition, offset + (1 if left is None else left[partition]))
        }
        if left is not None:
            self._ends = {
                partition: offset + left[partition] for partition, offset in reached.items()
            }
        for place in over:
            is_moving = place in tops and (before is None or tops[place] > before)
            self._since[place] = (
                now_ms if is_moving else min(now_ms, self._since.get(place, now_ms))
            )
        self._since = {place: since for place, since in self._since.items() if place in over}
        return {place for place, since in self._since.items() if now_ms - since < self.wait_ms}

    def _counting(self, before: int | None, reached: int | None, now_ms: int) -> int | None:
        """The event time that counts now."""
        if reached is None or reached == before:
            return reached
        if self._steps and now_ms < self._steps[-1][0]:  # the clock was set back
            self._steps.clear()
        if reached >= now_ms - LIVE_MS or self.wait_ms == 0:
            self._steps.clear()
            return reached
        if not self._steps or now_ms - self._steps[-1][0] >= STEP_MS:
            self._steps.append((now_ms, reached))
        while len(self._steps) > 1 and now_ms - self._steps[1][0] >= self.wait_ms:
            self._steps.popleft()
        at_ms, counts = self._steps[0]
        if now_ms - at_ms < self.wait_ms:
            return before
        return min(reached, counts) if before is None else max(before, min(reached, counts))
