"""Rows of `ew.windows`: the states of sessions, patterns and joins.

They are kept as long as their query is registered, running or not.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable
from typing import Final

from confluent_kafka import Producer

from edgewake.cloud.analysis.results.withheld import PLACE
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.table_reader import read_once
from edgewake.cloud.queries.query import Registered
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable

log = logging.getLogger("edgewake.analysis")

AGAIN_S: Final = 10.0
"""Seconds until rows that could not be removed are looked for again."""
FLUSH_S: Final = 10.0


def kept_rows(config: KafkaConfig, place: str = "") -> dict[str, bytes]:
    """The rows whose keys begin with `place|`, or all; those written longest ago are first.

    They are as stored (state_parts).

    Call after `LaneTransactions` is made: it ends what a dead predecessor left open. Raises
    Unavailable.
    """
    rows: dict[str, bytes] = {}
    start = f"{place}|" if place else ""

    def keep(key: str, value: bytes | None) -> None:
        rows.pop(key, None)
        if value is not None and key.startswith(start):
            rows[key] = value

    read_once(config, "analysis-windows", {topics.WINDOWS: keep})
    return rows


def withheld_rows(config: KafkaConfig, queries: Iterable[Registered]) -> dict[str, bytes]:
    """The rows that are emitted when they are final; reads nothing where no query has any.

    See kept_rows.
    """
    return kept_rows(config, PLACE) if any(one.query.emits_final for one in queries) else {}


def unowned(keys: Iterable[str], labels: Container[str]) -> list[str]:
    """Keys (place|label|…) of queries that are not registered."""
    return [key for key in keys if key.split("|", 2)[1] not in labels]


class StateRows:
    """Removes rows of removed queries; at the start also those that an earlier process left."""

    def __init__(self, config: KafkaConfig, producer: Producer, clock: Clock) -> None:
        self._config, self._producer, self._clock = config, producer, clock
        self._labels: frozenset[str] | None = None
        self._not_before_s = 0.0

    def keep(self, labels: Iterable[str]) -> None:
        """Remove what belongs to none of these queries (name@registered_at).

        Call it when no lane runs any other.
        """
        now = frozenset(labels)
        is_due = self._labels is None or self._labels - now
        if not is_due or self._clock.monotonic_s() < self._not_before_s:
            return
        try:
            self._remove(now)
        except Unavailable as error:
            log.warning(
                "states of removed queries stay for now: %s", error, extra={"event": "states.kept"}
            )
            self._not_before_s = self._clock.monotonic_s() + AGAIN_S
            return
        self._labels = now

    def _remove(self, labels: frozenset[str]) -> None:
        keys = unowned(kept_rows(self._config), labels)
        for key in keys:
            self._producer.produce(topics.WINDOWS, None, key)
            self._producer.poll(0)
        if self._producer.flush(FLUSH_S) > 0:
            raise Unavailable("Kafka does not take their removal")
        if keys:
            log.info(
                "removed %d states of removed queries",
                len(keys),
                extra={"event": "states.removed"},
            )
