"""Makes lanes' plans beside the main loop, so that a slow one delays nothing else.

Small plans are made one after the other, and large ones, too, in a thread of their own: whoever
registers a small query does not wait for somebody's large one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias

from edgewake.cloud.analysis.jobs.job import Job
from edgewake.cloud.analysis.lanes.lane import Lane
from edgewake.cloud.analysis.supervision.start_record import StartRecord
from edgewake.cloud.queries.lane_kind import LaneKind
from edgewake.cloud.queries.plan_cost import plan_cost

LARGE: Final = 5_000
"""Functions, names and constants of a plan (plan_cost) above which it is a large one: it takes
seconds."""

Key: TypeAlias = tuple[str, LaneKind]


class Starts:
    """`begin`, then `planned` each turn of the main loop, to which all of it belongs."""

    def __init__(self, record: StartRecord) -> None:
        self.record = record
        self._small, self._large = (
            ThreadPoolExecutor(1, "plans"),
            ThreadPoolExecutor(1, "large-plans"),
        )
        self._lanes: dict[Key, Lane] = {}

    def begin(self, key: Key, lane: Lane) -> None:
        """Begin making its plan, in place of another one of the same lane."""
        self._leave(key)
        self._lanes[key] = lane
        self.record.begun([registered.label for registered in lane.job.queries])
        is_large = sum(plan_cost(registered.query) for registered in lane.job.queries) > LARGE
        lane.plan(self._large if is_large else self._small)

    def job(self, key: Key) -> Job | None:
        """The lane being planned; None where none is."""
        lane = self._lanes.get(key)
        return None if lane is None else lane.job

    def keep(self, jobs: Mapping[Key, Job]) -> None:
        """Abandon plans that are no longer wanted."""
        for key in [key for key in self._lanes if key not in jobs]:
            self._leave(key)

    def planned(self) -> list[tuple[Key, Lane]]:
        """Those whose plans are made, or have failed: `Lane.start` raises why. Each once."""
        done = [(key, lane) for key, lane in self._lanes.items() if lane.is_planned]
        for key, _ in done:
            del self._lanes[key]
        return done

    def close(self) -> None:
        """Abandon all plans: the process is stopping."""
        for key in list(self._lanes):
            self._leave(key)
        for planner in (self._small, self._large):
            planner.shutdown(wait=False, cancel_futures=True)

    def _leave(self, key: Key) -> None:
        lane = self._lanes.pop(key, None)
        if lane is not None:  # it waits for its plan, which uses what is closed then
            threading.Thread(target=lane.stop, name=f"stop-{lane.name}", daemon=True).start()
