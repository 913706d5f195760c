"""Turns of the event loop: who may work now, and for how long.

Work comes in jobs that stop by themselves when their time is up and are asked again. Two lanes:
`live` (new records, for those who wait for them) and `behind` (those who catch up). In a slice of
`budget_s` the live lane goes first and each lane takes turns; the lane behind gets one turn in
every slice, however busy the other is. Between two slices the loop serves its sockets and timers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from edgewake.protocol.clock import Clock

BEHIND_SHARE: Final = 0.2
"""The share of a slice that one turn of `behind` may take after `live` used the slice up."""

IsTimeUp: TypeAlias = Callable[[], bool]
Job: TypeAlias = Callable[[IsTimeUp], bool]
"""Works until its time is up; True when there is more to do."""


class Turns:
    """Schedules jobs. `on_error` gets what a job raised; that job is not scheduled again."""

    def __init__(
        self, clock: Clock, *, budget_s: float, on_error: Callable[[Exception], None]
    ) -> None:
        self._now = clock.monotonic_s
        self._budget_s = budget_s
        self._on_error = on_error
        self._live: deque[Job] = deque()
        self._behind: deque[Job] = deque()
        """Both: at most one job of each cohort and each view, and one for all open streams."""
        self._handle: asyncio.Handle | None = None
        self.longest_s = 0.0
        """The longest slice since it was last set to 0."""

    def add(self, job: Job, *, live: bool) -> None:
        """Ask a job in its turn."""
        (self._live if live else self._behind).append(job)
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_soon(self._run)

    def close(self) -> None:
        """No more turns."""
        self._live.clear()
        self._behind.clear()
        if self._handle is not None:
            self._handle.cancel()

    def _run(self) -> None:
        began = self._now()
        self._run_lane(self._live, began + self._budget_s)
        share = max(self._budget_s - (self._now() - began), self._budget_s * BEHIND_SHARE)
        self._run_lane(self._behind, self._now() + share)
        self.longest_s = max(self.longest_s, self._now() - began)
        more = self._live or self._behind
        self._handle = asyncio.get_running_loop().call_soon(self._run) if more else None

    def _run_lane(self, lane: deque[Job], until: float) -> None:
        def is_time_up() -> bool:
            return self._now() >= until

        while lane:
            job = lane.popleft()
            try:
                more = job(is_time_up)
            except Exception as error:  # of whoever: the loop would only log it, again and again
                self._on_error(error)
                continue
            if more:
                lane.append(job)
            if is_time_up():
                return
