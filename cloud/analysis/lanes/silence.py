"""A lane without a batch: it reports its state, and event time goes on to its last windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from edgewake.cloud.analysis.jobs.job import Job
from edgewake.cloud.analysis.lanes import waits_for
from edgewake.cloud.analysis.lanes.emission import Emission
from edgewake.cloud.analysis.lanes.lane_plan import LanePlan
from edgewake.cloud.analysis.lanes.lane_time import LaneTime
from edgewake.cloud.analysis.results import emit, event_progress, lane_progress
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.protocol.clock import Clock

LOOK_S: Final = 0.5
"""Seconds by the clock between two checks of all keys while a stream is silent, for absences that
are due and readings that found no partner. Event time cannot say when: it stops with the
readings."""
ASK_S: Final = 1.0
"""Seconds between two questions to Kafka whether a stream that seems silent has unread readings:
the supervisor looks at each lane five times a second."""

_NOTHING: Final[Mapping[int, int]] = {}


class Silence:
    """Emits what falls due while no readings come to a lane.

    It is called between batches, never during one.
    """

    def __init__(
        self,
        job: Job,
        clock: Clock,
        plan: LanePlan,
        time: LaneTime,
        emission: Emission,
        *,
        idle_s: float,
        rests: Callable[[], bool],
    ) -> None:
        """`rests`: does the lane pause between two batches, so that it looks for no readings?"""
        self._job, self._clock, self._plan = job, clock, plan
        self._time, self._emission = time, emission
        self._idle_s, self._rests = idle_s, rests
        self._asked_s = float("-inf")
        """When Kafka was asked last, before something was said; monotonic."""
        self._looked_to: int | None = 0
        """Event time at the last check of all keys; the next line has when that was, s."""
        self._looked_s = float("-inf")

    def has_news(self, silent_s: float) -> bool:
        """Might `say_running` say something that was not said?

        Nobody is asked for that; it is said if Kafka then says that nothing is unread.
        """
        if self._waits(self._emission.record, silent_s, _NOTHING) == self._emission.said:
            return False
        return self._clock.monotonic_s() - self._asked_s >= ASK_S

    def say_running(self, silent_s: float) -> None:
        """Report that the lane runs, and what event time waits for. Raises KafkaException."""
        record = self._emission.record
        left = self._plan.left(record.offsets)
        self._asked_s = self._clock.monotonic_s()
        waits = self._waits(record, silent_s, left)
        if self._emission.has_said_running and waits == self._emission.said:
            return
        self._emission.say(self._emission.progress(record, waits, left=left))

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
            progress=emission.progress(
                after, self._waits(after, silent_s, left), rate=0.0, left=left
            ),
            why="what it emits in silence",
        )
        self._plan.forget_to(top)

    def _waits(
        self, record: LaneRecord, silent_s: float, left: Mapping[int, int] | None
    ) -> lane_progress.Waits:
        """What event time waits for, with the lane at `record`; `left`: see waits_for.silence."""
        silence = ""
        # While the lane rests readings may come and wait for the next batch: whether the stream is
        # silent shows once Spark looks for them.
        if not self._rests():
            is_final = silent_s >= self._idle_s and self._is_final(record)
            silence = waits_for.silence(silent_s, self._idle_s, left, is_final=is_final)
        return self._time.waits(record, self._clock.now_ms(), silence)

    def _is_final(self, record: LaneRecord) -> bool:
        """Are the last windows of what was read final?"""
        if record.top is None:
            return False
        latest = max(record.tops.values(), default=record.top)
        end = event_progress.last_end(
            latest, (registered.query for registered in self._job.queries)
        )
        return end is not None and record.top >= end

    def _is_news(self, step: emit.Batch) -> bool:
        """Would anything be emitted with event time at this step?"""
        if any(emit.watermarks(self._job.queries, step)):
            return True
        now_s = self._clock.monotonic_s()
        if step.top in (None, self._looked_to) or now_s - self._looked_s < LOOK_S:
            return False
        self._looked_to, self._looked_s = step.top, now_s
        return self._emission.states.is_due(step.top)
