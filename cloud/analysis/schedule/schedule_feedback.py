"""When a lane polls next, and what it learns for it from each of its batches (schedule)."""

from __future__ import annotations

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.jobs.job import Job
from edgewake.cloud.analysis.plan.observed import Observed
from edgewake.cloud.analysis.schedule import schedule


class Looks:
    """Decides when one lane polls, from its start on.

    Only a calm stream teaches: a busy one has a batch each second in any case, and two after
    windows' ends.
    """

    def __init__(self, config: AnalysisConfig, job: Job) -> None:
        self._config, self._job = config, job
        self._windows = {registered.query.window for registered in job.queries}
        self._settle = schedule.Settle()
        self._before_ms: int | None = None
        """When the last batch looked, where it had all that was there."""

    def next_ms(
        self, looked_ms: int, observed: Observed, *, rate: float, left: int | None, batches: int
    ) -> int:
        """After the batch that looked at `looked_ms`.

        `rate`: its readings a second; `left`: records that wait; `batches`: all so far.
        """
        before_ms, self._before_ms = self._before_ms, looked_ms
        busy = schedule.is_busy(rate, read=observed.readings, left=left) or schedule.is_new(
            self._job.queries, looked_ms
        )
        if not busy:
            self._settle = schedule.learned(
                self._settle,
                self._windows,
                before_ms=before_ms,
                oldest_ms=observed.oldest,
                batches=batches,
            )
        return schedule.next_ms(
            looked_ms,
            self._windows,
            least_ms=self._config.trigger_ms,
            calm_ms=self._config.calm_trigger_ms,
            busy=busy,
            oldest_ms=observed.oldest,
            settle=schedule.Settle() if busy else self._settle,
        )

    def forget(self) -> None:
        """The batch had as many records as it might: what the next one finds was not late."""
        self._before_ms = None
