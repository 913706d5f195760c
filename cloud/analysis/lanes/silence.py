"""A lane without a batch: it reports its state, and event time goes on to its last windows."""

from __future__ import annotations

from typing import Final

from edgewake.cloud.analysis.jobs.job import Job
from edgewake.cloud.analysis.lanes.emission import Emission
from edgewake.cloud.analysis.lanes.lane_plan import LanePlan
from edgewake.cloud.analysis.lanes.lane_time import LaneTime
from edgewake.cloud.analysis.results import emit, lane_progress
from edgewake.protocol.clock import Clock

LOOK_S: Final = 0.5
"""Seconds by the clock between two checks of all keys while a stream is silent, for absences that
are due and readings that found no partner. Event time cannot say when: it stops with the
readings."""


class Silence:
    """Emits what falls due while no readings come to a lane.

    It is called between batches, never during one.
    """

    def __init__(
        self, job: Job, clock: Clock, plan: LanePlan, time: LaneTime, emission: Emission
    ) -> None:
        self._job, self._clock, self._plan = job, clock, plan
        self._time, self._emission = time, emission
        self._looked_to: int | None = 0
        """Event time at the last check of all keys; the next line has when that was, s."""
        self._looked_s = float("-inf")

    def waits(self, silent_s: float) -> lane_progress.Waits:
        """What event time waits for now."""
        return self._time.waits(self._emission.record, silent_s, self._clock.now_ms())

    def say_running(self, silent_s: float) -> None:
        """Report that the lane runs, and what event time waits for. Raises KafkaException."""
        record = self._emission.record
        self._emission.say(
            self._emission.progress(
                record, self.waits(silent_s), left=self._plan.left(record.offsets)
            )
        )

    def advance(self, silent_s: float) -> None:
        """Advance event time after this much silence. Raises KafkaException."""
        emission, record = self._emission, self._emission.record
        queries = [registered.query for registered in self._job.queries]
        top = self._time.in_silence(record, silent_s, queries, self._clock.now_ms())
        step = emission.step(top)
        if not self._is_news(step):
            return
        left = self._plan.left(record.offsets)
        if left is None or any(left.values()):
            return
        self._time.waits_for_nothing()
        after = record.model_copy(update={"revision": step.revision, "top": top})
        broken: emit.Broken = {}
        emission.write(
            [*emission.states.in_silence(step, broken), *emit.watermarks(self._job.queries, step)],
            step,
            after,
            broken=broken,
            progress=emission.progress(after, self.waits(silent_s), rate=0.0, left=left),
            why="what it emits in silence",
        )
        self._plan.forget_to(top)

    def _is_news(self, step: emit.Batch) -> bool:
        """Would anything be emitted with event time at this step?"""
        if any(emit.watermarks(self._job.queries, step)):
            return True
        now_s = self._clock.monotonic_s()
        if step.top in (None, self._looked_to) or now_s - self._looked_s < LOOK_S:
            return False
        self._looked_to, self._looked_s = step.top, now_s
        return self._emission.states.is_due(step.top)
