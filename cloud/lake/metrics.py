"""What the lake counts; gathered by Prometheus from metrics_port."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, Metric

from edgewake.cloud.metrics import gauge


@dataclass(slots=True)
class LakeMetrics:
    """Plain counts."""

    rows: int = 0
    foreign: int = 0
    overtaken: int = 0
    failures: int = 0
    damaged: int = 0
    files: int = 0
    bytes: int = 0

    def gather(self) -> Iterable[Metric]:
        """The metrics of the lake for Prometheus."""
        for name, text, value in (
            ("rows", "Readings, results and summaries put into the lake.", self.rows),
            ("foreign_records", "Records that none of our parts wrote, left out.", self.foreign),
            (
                "overtaken_records",
                "Records that Kafka deleted before they were read.",
                self.overtaken,
            ),
            ("failures", "Times that Kafka, the disk or the manifest was away.", self.failures),
            (
                "damaged_files",
                "Files that could not be read when they were to be merged.",
                self.damaged,
            ),
        ):
            yield CounterMetricFamily(f"edgewake_lake_{name}", text, value=value)
        yield gauge("edgewake_lake_files", "Files of the lake.", self.files)
        yield gauge("edgewake_lake_bytes", "Bytes of these files.", self.bytes)
