"""The keys under `kafka` in every part's configuration: where Kafka is, its topics' settings."""

from __future__ import annotations

from typing import Final, Self

from pydantic import Field, model_validator

from edgewake.cloud.kafka.security import SecurityConfig
from edgewake.protocol.config import Config

RECORD_BYTES_MAX: Final = 2 * 1024 * 1024
"""Bytes of a Kafka record: a frame of FRAME_BYTES_MAX with its envelope. Larger ones never pass the
bridge."""
UP_BATCH_BYTES: Final = 128 * 1024
"""The most bytes of a batch on `ew.up`, unless one record is larger. Kafka gives out whole batches,
and a reader of 64 partitions with a backlog comes to the last of them after a piece of each other
one: with batches of a megabyte a round is 64 MiB, ten seconds of work. Smaller batches are
expensive where frames are large: those of an agent at full load have 36 KB, and with 32 KiB each
was a request alone."""
METADATA_TIMEOUT_S: Final = 4.0
"""Seconds for one question to Kafka; below the five in which a part must stop."""


class KafkaConfig(Config):
    """Where Kafka is and how topics are made."""

    bootstrap: str = "127.0.0.1:9092"
    """host:port, several separated by commas."""
    security: SecurityConfig = SecurityConfig()
    """[kafka.security]"""
    installation: str = Field(default="edgewake", pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")
    """Name of this installation, the same for all of its parts. Topics, groups and transactional
    ids have fixed names, so a Kafka serves one installation: a part whose installation has another
    name than the first that came does not start. Give each of yours a name. Two on one MQTT broker
    each get every message, and a device is answered by both; the first answer frees what it
    sent."""
    partitions: int = Field(default=2, ge=1, le=256)
    """Partitions of every stream when it is made: the unit of parallel work for readers and for the
    analysis. `ew.up` always has 64."""
    replication: int = Field(default=1, ge=1, le=7)
    """Copies of each partition. 1 survives the death of the broker's process, not of its disk; use
    3 in production."""
    min_insync_replicas: int | None = Field(default=None, ge=1, le=7)
    """Copies that have a record before it is acknowledged; with fewer alive nothing is accepted.
    None: a majority of `replication`."""
    retention_hours: int = Field(default=168, ge=1)
    """Hours that streams, results and dead letters are kept."""
    up_retention_hours: int = Field(default=24, ge=1)
    """Hours that `ew.up` keeps what the bridges accepted: by time only, because what was
    acknowledged may not go before it is sequenced. Once the sequencer is half of it behind, the
    bridges accept nothing more."""
    retention_bytes: int = Field(default=1 << 30, ge=1 << 20)
    """Bytes kept per partition of streams and results; the older go first and readers are told by a
    gap."""

    @property
    def insync(self) -> int:
        """Copies that have a record before it is acknowledged."""
        return self.min_insync_replicas or self.replication // 2 + 1

    @model_validator(mode="after")
    def _has_so_many_copies(self) -> Self:
        if self.insync > self.replication:
            raise ValueError(
                f"min_insync_replicas = {self.insync}: expected at most replication = "
                f"{self.replication}"
            )
        return self
