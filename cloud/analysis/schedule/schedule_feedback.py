"""Decides when a lane polls next, and learns from each of its batches (rules: schedule.py)."""

from __future__ import annotations

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.jobs.job import Job
from edgewake.cloud.analysis.plan.observed import Observed
from edgewake.cloud.analysis.schedule import schedule


class PollTimes:
    """The poll times of one lane, from its start on.

    Only a calm stream's delay is learned: a busy one has a batch every second in any case, and two
    after windows' ends.
    """

    def __init__(self, config: AnalysisConfig, job: Job) -> None:
        self._config, self._job = config, job
        self._windows = {registered.query.window for registered in job.queries}
        self._delay = schedule.ArrivalDelay()
        self._before_ms: int | None = None
        """When the last batch polled; None where it may not have had all records."""

    def next_ms(
        self, polled_ms: int, observed: Observed, *, rate: float, left: int | None, batches: int
    ) -> int:
        """When to poll after the batch that polled at `polled_ms`, ms.

        `rate`: its readings a second; `left`: unread records; `batches`: all batches so far.
        """
        before_ms, self._before_ms = self._before_ms, polled_ms
        busy = schedule.is_busy(rate, read=observed.readings, left=left) or schedule.is_new(
            self._job.queries, polled_ms
        )
        if not busy:
            self._delay = schedule.updated_delay(
                self._delay,
                self._windows,
                before_ms=before_ms,
                oldest_ms=observed.oldest,
                batches=batches,
            )
        return schedule.next_ms(
            polled_ms,
            self._windows,
            least_ms=self._config.trigger_ms,
            calm_ms=self._config.calm_trigger_ms,
            busy=busy,
            oldest_ms=observed.oldest,
            delay=schedule.ArrivalDelay() if busy else self._delay,
        )

    def forget(self) -> None:
        """Learn nothing from the next batch: it has the rest of one that reached its limit."""
        self._before_ms = None
