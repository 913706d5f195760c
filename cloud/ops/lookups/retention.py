"""Tells and changes how long Kafka keeps the readings of a stream, by the settings of its topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BaseModel, Field

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.metadata import topic_configs
from edgewake.cloud.ops.tables.table_writer import TableWriter
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import LocalError, Unavailable

HOUR_MS: Final = 3_600_000
KEPT_MS_MIN: Final = HOUR_MS
"""The shortest retention: who reads, computes or sleeps may be away for so long."""
KEPT_MS_MAX: Final = 10 * 365 * 24 * HOUR_MS
"""The longest retention, ms: ten years; what shall stay for longer is in the lake."""
BYTES_MIN: Final = 1 << 20
BYTES_MAX: Final = 1 << 50
SEGMENT_MS: Final = (600_000, 7 * 24 * HOUR_MS)
"""The shortest and the longest time after which Kafka begins a new segment of a topic."""
SEGMENTS: Final = 8
"""Kafka removes whole segments, so readings go at most an eighth of the retention later."""

READ_BACK_S: Final = 10.0
"""How long Kafka may take to show a change, s."""
READ_BACK_POLL_S: Final = 0.05

KeptMs = Annotated[int, Field(ge=KEPT_MS_MIN, le=KEPT_MS_MAX)]
KeptBytes = Annotated[int, Field(ge=BYTES_MIN, le=BYTES_MAX)]


class Retention(BaseModel):
    """How long Kafka keeps the readings of a stream; what goes first counts."""

    kept_ms: int | None
    """ms after a bridge received them; null: without end."""
    bytes_max: int | None
    """Bytes of each partition; null: without a bound."""
    default_ms: int
    """What a new stream gets."""
    default_bytes: int


def retention_of(settings: Mapping[str, str], config: KafkaConfig) -> Retention:
    """What the settings of a topic say."""
    return Retention(
        kept_ms=_bound(settings["retention.ms"]),
        bytes_max=_bound(settings["retention.bytes"]),
        default_ms=config.retention_hours * HOUR_MS,
        default_bytes=config.retention_bytes,
    )


def settings_of(kept_ms: int | None, bytes_max: int | None) -> dict[str, str]:
    """The settings of a topic for this retention; None: as it is."""
    settings = {}
    if kept_ms is not None:
        shortest, longest = SEGMENT_MS
        settings["retention.ms"] = str(kept_ms)
        settings["segment.ms"] = str(min(max(kept_ms // SEGMENTS, shortest), longest))
    if bytes_max is not None:
        settings["retention.bytes"] = str(bytes_max)
    return settings


class RetentionDesk:
    """Asks Kafka, and has it changed."""

    def __init__(self, config: KafkaConfig, writer: TableWriter, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._writer = writer
        self._admin = clients.admin(config)

    async def look(self, stream: str) -> Retention:
        """Raises Problem(404) where Kafka has no topic of it (yet), and Unavailable."""
        topic = topics.stream_topic(stream)
        settings = await self._writer.blocking(lambda: topic_configs(self._admin, topic))
        if not settings:
            raise Problem(
                404,
                "no_retention",
                f"Kafka has no topic {topic} yet, or does not say its settings: the topic comes "
                "with the first reading of the stream",
            )
        return retention_of(settings, self._config)

    async def check(self, stream: str, kept_ms: int | None, bytes_max: int | None) -> None:
        """Raises as `change` would, and changes nothing."""
        await self.look(stream)
        topic, settings = topics.stream_topic(stream), settings_of(kept_ms, bytes_max)
        await self._alter(topic, settings, is_trial=True)

    async def change(self, stream: str, kept_ms: int | None, bytes_max: int | None) -> None:
        """Changes what is not None; returns when Kafka shows it.

        Raises Problem(404 | 409), Unavailable.
        """
        await self.look(stream)
        topic, settings = topics.stream_topic(stream), settings_of(kept_ms, bytes_max)
        await self._alter(topic, settings, is_trial=False)
        await self._shown(topic, settings)

    async def _alter(self, topic: str, settings: Mapping[str, str], *, is_trial: bool) -> None:
        try:
            await self._writer.blocking(
                lambda: topic_admin.alter_settings(self._admin, topic, settings, is_trial=is_trial)
            )
        except LocalError as error:
            raise Problem(
                409,
                "kafka_refuses",
                f"Kafka refuses the change: {error}; let the user of the operations API alter "
                "the settings of topics",
            ) from error

    async def _shown(self, topic: str, settings: Mapping[str, str]) -> None:
        """A broker may describe a topic as it was for a moment. Raises Unavailable."""
        deadline_s = self._clock.monotonic_s() + READ_BACK_S
        while True:
            found = await self._writer.blocking(lambda: topic_configs(self._admin, topic))
            if settings.items() <= found.items():
                return
            if self._clock.monotonic_s() > deadline_s:
                raise Unavailable(f"topic {topic}: Kafka took the change and does not show it yet")
            await self._clock.sleep(READ_BACK_POLL_S)


def _bound(text: str) -> int | None:
    """-1 is Kafka's word for none."""
    number = int(text)
    return None if number < 0 else number
