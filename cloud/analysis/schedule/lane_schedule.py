"""The schedule of one lane: when its next batch begins, and how many records it may have.

Pure: time and each batch's figures are passed in. The rules are elsewhere: when in schedule.py, how
many in batch_limit.py, and whether the lane falls behind in slow.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.jobs.job import Job
from edgewake.cloud.analysis.plan.observed import Observed
from edgewake.cloud.analysis.schedule.batch_limit import BatchLimit
from edgewake.cloud.analysis.schedule.schedule_feedback import PollTimes
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
    """Unread records; None where Kafka does not say."""
    took: Mapping[str, float]
    """Query (label) → seconds of processor that the driver took for it."""

    @property
    def unread(self) -> int:
        """Records that are known to be unread."""
        return self.left or 0


class LaneSchedule:
    """The schedule of one lane, from its start on. Other threads read `behind`, too."""

    def __init__(self, config: AnalysisConfig, job: Job) -> None:
        self._config = config
        self._is_expensive = job.is_driven or job.queries[0].is_isolated
        self._polls = PollTimes(config, job)
        self._limit = BatchLimit(config.batch_records_max, is_expensive=self._is_expensive)
        self._next_ms = 0
        """When the next batch begins, ms; 0: immediately."""
        self._polled_ms = 0
        """From when on Spark could ask where the current batch ends, ms; it plans after that."""
        self._began_s = 0.0
        self.behind = Behind()

    @property
    def records(self) -> int:
        """Records that the next batch may have."""
        return self._limit.records

    def limit_to(self, most: int) -> bool:
        """Limit every batch to this many records. Returns whether that is less than configured."""
        if most == self._config.batch_records_max:
            return False
        self._limit = BatchLimit(most, is_expensive=self._is_expensive)
        return True

    def polls(self, now_ms: int) -> None:
        """Note that from now on Spark may ask where the next batch ends."""
        self._polled_ms = now_ms

    def begins(self, now_s: float) -> None:
        """Note that a batch begins."""
        self._began_s, self._next_ms = now_s, 0
        self.behind.begins(now_s)

    def repeated(self, now_s: float, took: Mapping[str, float]) -> None:
        """Note that the batch had been emitted before: the next one begins immediately."""
        self.behind.ends(now_s, 0, is_cut_off=False, cost=Cost(took, 0))

    def ends(
        self, done: Done, *, batches: int, is_isolated: bool, now_s: float, now_ms: int
    ) -> None:
        """Note that a batch was emitted.

        `batches`: how many the lane finished before; `is_isolated`: is its one query isolated?
        """
        next_ms = self._polls.next_ms(
            self._polled_ms,
            done.observed,
            rate=done.rate,
            left=done.left,
            batches=batches,
        )
        took_s = now_s - self._began_s
        is_cut_off = self._limit.learn(done.read, done.observed.readings, took_s, left=done.unread)
        if is_cut_off:
            self._polls.forget()
        self._next_ms = 0 if is_cut_off else next_ms
        if is_isolated:  # the other lanes have the machine for as long as it had it
            self._next_ms = max(self._next_ms, now_ms + int(took_s * 1000))
        self.behind.ends(now_s, done.unread, is_cut_off=is_cut_off, cost=Cost(done.took, done.read))

    def rest_s(self, now_ms: int) -> float:
        """Seconds until the next batch is worth its cost; not positive when it is."""
        # Bounded, because the clock may be set back meanwhile.
        longest_ms = max(self._config.trigger_ms, self._config.calm_trigger_ms)
        return min(self._next_ms - now_ms, longest_ms) / 1000
