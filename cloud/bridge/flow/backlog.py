"""Stops the bridges where Kafka might delete records before the sequencer has read them.

`ew.up` is retained by time. The age of the oldest record that is not sequenced may reach
BEHIND_SHARE of that time, not more: the rest is for the sequencer to come back. It publishes its
position as the offsets of its group; three questions to Kafka tell a bridge everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from confluent_kafka import KafkaException

from edgewake.cloud.kafka import clients, metadata
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.up_places import UpPlaces
from edgewake.protocol import topics
from edgewake.protocol.errors import Unavailable

CHECK_S: Final = 2.0
"""Seconds between two looks."""
BEHIND_SHARE: Final = 0.5
"""Share of the retention time of `ew.up` after which a waiting record stops the bridges. At the
bound nothing is read from the broker, and devices keep their data."""
CAUGHT_UP_SHARE: Final = 0.25
"""Share below which they go on: far enough from the other that they do not stop and go all the
time."""


class Backlog(NamedTuple):
    """What Kafka tells of `ew.up` at one moment, by partition."""

    sequenced: Mapping[int, int]
    """Offset below which all is sequenced; none where nothing ever was."""
    young_from: Mapping[int, int]
    """First offset whose record is younger than the share of the retention time; the end where none
    is."""


def is_behind(backlog: Backlog) -> bool:
    """Does a record wait that is older than the share?"""
    return any(
        backlog.sequenced.get(partition, 0) < first
        for partition, first in backlog.young_from.items()
    )


class BacklogCheck:
    """Asks Kafka. Blocks: for a thread. `is_behind` is the last verdict."""

    def __init__(self, config: KafkaConfig, client_id: str) -> None:
        self._client = clients.admin(config)
        self._places = UpPlaces(config, client_id)
        self.is_behind = False

    def close(self) -> None:
        """Close the connections."""
        self._places.close()

    def look(self, now_ms: int) -> bool:
        """Ask and judge. Raises Unavailable; then the last verdict stands."""
        try:
            retention_ms = self._retention_ms()
            if retention_ms < 0:
                self.is_behind = False
            else:
                share = CAUGHT_UP_SHARE if self.is_behind else BEHIND_SHARE
                young_from = self._young_from(now_ms - int(retention_ms * share))
                self.is_behind = is_behind(Backlog(self._places.sequenced(), young_from))
        except KafkaException as error:
            raise Unavailable(f"Kafka: {error.args[0].str()}") from error
        return self.is_behind

    def _retention_ms(self) -> int:
        found = metadata.topic_configs(self._client, topics.UP)
        # The broker that we ask has not heard of it yet, or may not tell us.
        if "retention.ms" not in found:
            raise Unavailable(f"topic {topics.UP}: its settings are not known")
        return int(found["retention.ms"])

    def _young_from(self, time_ms: int) -> Mapping[int, int]:
        # In this order, and before it is asked what is sequenced: a record that comes meanwhile is
        # never taken for an old one.
        ends = self._places.ends()
        found = self._places.from_time(time_ms)
        return {
            partition: ends[partition] if offset < 0 else offset
            for partition, offset in found.items()
        }
