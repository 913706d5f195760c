"""When a lane looks next, and what it learns for it from each of its batches (schedule)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.jobs.job import Job
from edgewake.cloud.analysis.lanes import schedule
from edgewake.cloud.analysis.plan.observed import Observed


class _Look(NamedTuple):
    """A batch that had all that was there."""

    at_ms: int
    ended: int | None
    """Its rows of the windows that ended last before it; None where rows do not tell, or nobody
    asks."""


@dataclass
class Looks:
    """Of one lane, from its start on."""

    config: AnalysisConfig
    job: Job

    def __post_init__(self) -> None:
        self._windows = {registered.query.window for registered in self.job.queries}
        self._has_second_looks = schedule.has_second_looks(self._windows, self.config.trigger_ms)
        self._settle = schedule.Settle()
        self._before: _Look | None = None

    def next_ms(
        self,
        looked_ms: int,
        rows: pa.Table,
        observed: Observed,
        *,
        rate: float,
        left: int | None,
        batches: int,
    ) -> int:
        """After the batch that looked at `looked_ms`.

        `rate`: its readings a second; `left`: records that wait; `batches`: all so far.
        """
        busy = schedule.is_busy(rate, read=observed.readings, left=left) or schedule.is_new(
            self.job.queries, looked_ms
        )
        before, self._before = self._before, _Look(looked_ms, self._ended(rows, looked_ms))
        self._settle = schedule.learned(
            self._settle,
            self._windows,
            before_ms=None if before is None else before.at_ms,
            oldest_ms=observed.oldest,
            batches=batches,
            late=self._late(before, rows) if busy else None,
        )
        return schedule.next_ms(
            looked_ms,
            self._windows,
            least_ms=self.config.trigger_ms,
            calm_ms=self.config.calm_trigger_ms,
            busy=busy,
            oldest_ms=observed.oldest,
            settle=self._settle,
        )

    def forget(self) -> None:
        """The batch had as many records as it might: what the next one finds was not late."""
        self._before = None

    def _late(self, before: _Look | None, rows: pa.Table) -> float | None:
        """Of the rows of the windows that ended before the last look, the share that came or
        changed after it.
        """
        if (
            before is None
            or not before.ended
            or (changed := self._ended(rows, before.at_ms)) is None
        ):
            return None
        return min(changed / before.ended, 1.0)

    def _ended(self, rows: pa.Table, at_ms: int) -> int | None:
        """How many are of the windows that ended last before that time."""
        end = schedule.last_end(self._windows, at_ms) if self._has_second_looks else None
        if end is None or "window_end" not in rows.column_names:
            return None
        return pc.sum(pc.equal(rows["window_end"], end)).as_py() or 0
