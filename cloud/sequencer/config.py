"""The sequencer's configuration: sequencer.toml."""

from __future__ import annotations

from pydantic import Field

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.config import Config


class SequencerConfig(Config):
    """One sequencer; several under different names share the partitions of `ew.up`."""

    name: str = Field(default="sequencer-1", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """Group instance id; stable, so that after a restart the group gives it the same partitions without a new division."""
    kafka: KafkaConfig = KafkaConfig()
    """[kafka]"""
    metrics_port: int | None = Field(default=None, ge=1, le=65_535)
    """Port of Prometheus metrics and of /healthz; none: neither."""
    metrics_host: str = "127.0.0.1"
    """Address of /metrics and /healthz; 0.0.0.0 where Prometheus asks from another container or machine. Nothing there is secret."""
    hold_s: float = Field(default=60.0, gt=0, le=3600)
    """Seconds that later frames wait for a missing one: longer than a bridge's restart and a device's next attempt together."""
    hold_frames_max: int = Field(default=1024, ge=1)
    """Frames held per device, epoch and stream; at the bound the gap is said and the rest goes on."""
    hold_bytes_max: int = Field(default=8 << 20, ge=1 << 20)
    """Bytes held per device, epoch and stream."""
    hold_bytes_total: int = Field(default=64 << 20, ge=1 << 20)
    """Bytes held per partition."""
    states_max: int = Field(default=200_000, ge=1000)
    """Devices × epochs × streams remembered per partition; the quietest are forgotten first."""
    batch_records: int = Field(default=4000, ge=1, le=50_000)
    """Records in one transaction at most."""
