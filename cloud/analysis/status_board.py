"""Publishes on `ew.progress` where queries stand that no lane runs.

It also knows what was said there before this process began.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from edgewake.cloud.analysis.results.lane_progress import progress_output
from edgewake.cloud.queries.registry import QueryStatus
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.ops.query import Progress, QueryState

log = logging.getLogger("edgewake.analysis")

DETAIL_CHARS_MAX: Final = 1000
FLUSH_S: Final = 2.0
"""How long what was said is waited for before a lane says something newer of the same queries."""


class StatusBoard:
    """Publishes each status once; lanes publish those of the queries that they run."""

    def __init__(self, producer: Producer, clock: Clock) -> None:
        self._producer, self._clock = producer, clock
        self._said: dict[str, Progress] = {}
        """What was published last of each query, but for the time."""
        self._known: set[str] = set()
        """Queries that have a record on `ew.progress`."""
        self.quarantined: dict[str, str] = {}
        """Query (label) → why it was in quarantine when this process began."""
        self.isolated: dict[str, str] = {}
        """Query → label of those that had lanes of their own when this process began."""

    def on_progress(self, name: str, value: bytes | None) -> None:
        """A record of `ew.progress`; ValueError where it cannot be read."""
        self._known.add(name)
        self.quarantined = {
            label: why
            for label, why in self.quarantined.items()
            if label.rpartition("@")[0] != name
        }
        self.isolated.pop(name, None)
        if value is None:
            return
        progress = Progress.model_validate_json(value)
        label = f"{name}@{progress.registered_at}"
        if progress.quarantined:
            self.quarantined[label] = progress.detail
        if progress.isolated:
            self.isolated[name] = label

    def publish(
        self,
        name: str,
        status: QueryStatus,
        *,
        registered_at: int,
        quarantined: bool = False,
        isolated: bool = False,
    ) -> None:
        """Publishes the state of a query that no lane runs."""
        said = Progress(
            query=name,
            stream=status.stream,
            registered_at=registered_at,
            state=status.state,
            quarantined=quarantined,
            isolated=isolated,
            detail=status.detail[:DETAIL_CHARS_MAX],
            updated_at=0,
        )
        self._producer.poll(0)
        if self._said.get(name) == said:
            return
        output = progress_output(said.model_copy(update={"updated_at": self._clock.now_ms()}))
        self._producer.produce(
            output.topic,
            output.value,
            output.key,
            on_delivery=partial(self._on_delivery, name, said),
        )
        self._said[name] = said
        self._producer.poll(0)
        level = (
            logging.WARNING
            if status.state in (QueryState.REFUSED, QueryState.FAILED, QueryState.RETRYING)
            else logging.INFO
        )
        log.log(
            level,
            "query %s is %s: %s",
            name,
            status.state,
            status.detail,
            extra={"event": f"query.{status.state}"},
        )

    def _on_delivery(self, name: str, said: Progress, error: KafkaError | None, _: Message) -> None:
        """Publish again, with the next call, what Kafka did not take in all its time."""
        if error is not None and self._said.get(name) == said:
            del self._said[name]

    def hand_over(self, names: Iterable[str]) -> None:
        """Leave the states of these queries to a lane, which publishes them from here on."""
        self._producer.flush(FLUSH_S)
        for name in names:
            self._said.pop(name, None)

    def keep(self, names: set[str]) -> None:
        """Remove the states of all other queries: they are no longer registered."""
        for name in self._known - names:
            self._said.pop(name, None)
            self._producer.produce(
                topics.PROGRESS, None, name, on_delivery=partial(self._on_removal, name)
            )
        self._known = names

    def _on_removal(self, name: str, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._known = self._known | {name}
