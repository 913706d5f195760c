"""The sequencer's configuration: sequencer.toml."""

from __future__ import annotations

from pydantic import Field

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.sequencer.order.bounds import Bounds
from edgewake.cloud.traces.config import TracesConfig
from edgewake.protocol import topics
from edgewake.protocol.config import Config


class SequencerConfig(Config):
    """One sequencer; up to 16 under different names share the work."""

    name: str = Field(default="sequencer-1", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """Group instance id; stable, so that after a restart it has the same shards without a
    rebalance."""
    kafka: KafkaConfig = KafkaConfig()
    """[kafka]"""
    traces: TracesConfig = TracesConfig()
    """[traces]"""
    metrics_port: int | None = Field(default=None, ge=1, le=65_535)
    """Port of Prometheus metrics, /healthz and /readyz; none: neither."""
    metrics_host: str = "127.0.0.1"
    """Address of that port; 0.0.0.0 where Prometheus asks from another container or machine.
    Nothing there is secret."""
    session_s: float = Field(default=6.0, ge=0.5, le=600)
    """Seconds without a sign of life after which the group gives this process's shards to the
    others: the beginning of every takeover. The default is the least that a Kafka allows unless its
    `group.min.session.timeout.ms` is lowered, as it is in our compose file."""
    hold_s: float = Field(default=5.0, gt=0, le=3600)
    """Seconds that later frames wait for an earlier one. Then they pass, and the hole is stated
    open; the frame may still come, late."""
    unknown_s: float = Field(default=2.0, gt=0, le=3600)
    """Seconds that frames of an epoch nothing is known of wait for number 1."""
    hold_bytes_total: int = Field(default=256 << 20, ge=64 << 20)
    """Bytes of frames that wait in all; each of the 64 partitions has its share, and at the bound
    the largest holder gives way. Of one device, epoch and stream 1024 frames or 2 MiB wait."""
    lost_after_s: float = Field(default=86_400.0, gt=0)
    """Seconds after which the frames of an open hole are counted as lost."""
    states_max: int = Field(default=2_000_000, ge=64_000)
    """Devices × epochs × streams remembered in all, 60 to 80 bytes each; every partition has its
    share. At the bound the quietest are forgotten; their next frame is then the first one known,
    nothing is counted as lost."""
    batch_records: int = Field(default=4000, ge=1, le=50_000)
    """Records read and committed at once at most."""

    def bounds(self) -> Bounds:
        """The bounds of one partition."""
        return Bounds(
            hold_s=self.hold_s,
            unknown_s=self.unknown_s,
            bytes_total=self.hold_bytes_total // topics.UP_PARTITIONS,
            hole_s=self.lost_after_s,
            # Devices fall unevenly on partitions: a sixteenth more each.
            states=self.states_max * 17 // (16 * topics.UP_PARTITIONS),
        )
