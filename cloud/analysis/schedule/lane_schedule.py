"""The schedule of one lane: when its next batch begins, and how many records it may have.

Pure: it is told the time, and what each batch had. schedule.py has the rules of when,
batch_limit.py those of how many, slow.py says whether the lane falls behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.jobs.job import Job
from edgewake.cloud.analysis.plan.observed import Observed
from edgewake.cloud.analysis.schedule.batch_limit import BatchLimit
from edgewake.cloud.analysis.schedule.schedule_feedback import Looks
from edgewake.cloud.analysis.schedule.slow import Behind, Cost


@dataclass(frozen=True, slots=True)
class Done:
    """A batch that was emitted."""

    observed: Observed
    rate: float
    """Its readings a second, since the batch before."""
    read: int
    """Its records."""
    left: int | None
    """Records that wait; None where Kafka does not say."""
    took: Mapping[str, float]
    """Query (label) → seconds of processor that the driver took for it."""

    @property
    def unread(self) -> int:
        """Records that are known to wait."""
        return self.left or 0


class LaneSchedule:
    """From the start of a lane on. `behind` is read by other threads, too."""

    def __init__(self, config: AnalysisConfig, job: Job) -> None:
        self._config = config
        self._is_expensive = job.is_driven or job.queries[0].is_apart
        self._looks = Looks(config, job)
        self._limit = BatchLimit(config.batch_records_max, is_expensive=self._is_expensive)
        self._next_ms = 0
        """When the next batch begins; 0: at once."""
        self._looked_ms = 0
        """Since when Spark could ask where the batch under way ends: it plans after that."""
        self._began_s = 0.0
        self.behind = Behind()

    @property
    def records(self) -> int:
        """Records that the next batch may have."""
        return self._limit.records

    def limit_to(self, most: int) -> bool:
        """Let no batch have more; is that less than configured?"""
        if most == self._config.batch_records_max:
            return False
        self._limit = BatchLimit(most, is_expensive=self._is_expensive)
        return True

    def looks(self, now_ms: int) -> None:
        """From now on Spark may ask where the next batch ends."""
        self._looked_ms = now_ms

    def begins(self, now_s: float) -> None:
        """A batch begins."""
        self._began_s, self._next_ms = now_s, 0
        self.behind.begins(now_s)

    def repeated(self, now_s: float, took: Mapping[str, float]) -> None:
        """It had been emitted before: the next one begins at once."""
        self.behind.ends(now_s, 0, is_cut_off=False, cost=Cost(took, 0))

    def ends(self, done: Done, *, batches: int, is_apart: bool, now_s: float, now_ms: int) -> None:
        """Note that a batch was emitted.

        `batches`: how many the lane finished before; `is_apart`: has one query the lane for itself?
        """
        next_ms = self._looks.next_ms(
            self._looked_ms,
            done.observed,
            rate=done.rate,
            left=done.left,
            batches=batches,
        )
        took_s = now_s - self._began_s
        is_cut_off = self._limit.learn(done.read, done.observed.readings, took_s, left=done.unread)
        if is_cut_off:
            self._looks.forget()
        self._next_ms = 0 if is_cut_off else next_ms
        if is_apart:  # the other lanes have the machine for as long as it had it
            self._next_ms = max(self._next_ms, now_ms + int(took_s * 1000))
        self.behind.ends(now_s, done.unread, is_cut_off=is_cut_off, cost=Cost(done.took, done.read))

    def rest_s(self, now_ms: int) -> float:
        """How long until the next batch is worth its cost; not positive: it is."""
        # No longer than ever, however far the clock is set back meanwhile.
        longest_ms = max(self._config.trigger_ms, self._config.calm_trigger_ms)
        return min(self._next_ms - now_ms, longest_ms) / 1000
