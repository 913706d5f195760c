"""The lake's configuration: lake.toml."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from edgewake.cloud.folder import Folder
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.config import Config


class LakeConfig(Config):
    """What `edgewake lake` needs to know."""

    data_dir: Folder = Path("lake")
    """The lake: Parquet by stream and date, and manifest.db, which says what counts. A path, or
    file:///…; may be a mount that the operations API shares, of a file system that locks files, as
    SQLite needs it."""
    every_s: float = Field(default=60.0, gt=0, le=3600)
    """Seconds from one write to the next. What came meanwhile is asked in Kafka, so answers are as
    fresh with a large value."""
    keep_days: int = Field(default=90, ge=1, le=36_500)
    """Days that readings and results are kept after Kafka got them; while nothing comes, nothing
    becomes older. Summaries of hours are kept for 400 days, those of days for 4000, as their topics
    keep them."""
    bytes_max: int = Field(default=20 << 30, ge=1 << 20)
    """Bytes of all files; over it the oldest days go, of whatever stream, and summaries at last."""
    only: tuple[str, ...] = ()
    """Streams, queries and summaries (`summaries.hour`, `summaries.day`) that are kept; none: all
    but those of `leave_out`."""
    leave_out: tuple[str, ...] = ("part_status",)
    """Streams, queries and summaries that are not kept."""
    metrics_port: int | None = Field(default=None, ge=1, le=65_535)
    """Port of Prometheus metrics, /healthz and /readyz; none: neither."""
    metrics_host: str = "127.0.0.1"
    """Address of that port; 0.0.0.0 where Prometheus asks from another container or machine.
    Nothing there is secret."""
    kafka: KafkaConfig = KafkaConfig()
    """[kafka]"""
