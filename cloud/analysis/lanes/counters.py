"""What a lane, or the job that sums streams up, has done; for metrics."""

from __future__ import annotations

from dataclasses import dataclass

from edgewake.cloud.analysis.plan.observed import Observed


@dataclass
class Counters:
    """Since it was made."""

    batches: int = 0
    readings: int = 0
    results: int = 0
    late: int = 0
    flagged: int = 0
    forgotten: int = 0
    """Batches after which more was open than is kept."""

    def count(self, observed: Observed, results: int, late: int) -> None:
        """Count a batch that was emitted."""
        self.readings += observed.readings
        self.results += results
        self.late += late
        self.flagged += observed.flagged
