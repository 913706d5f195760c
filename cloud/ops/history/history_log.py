"""Writes what happened to `ew.history`, from where every operations server reads it.

All servers see the same events, and one writes: the one that judges alerts. The others keep theirs
for PENDING_S, so that who takes over writes what the one before did not. Nothing waits for Kafka:
what cannot be written within that time is left out.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException
from pydantic import ValidationError

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.ops.tables.past import Noted, Past
from edgewake.cloud.ops.tables.tables import Change
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock

log = logging.getLogger("edgewake.ops")

PENDING_S: Final = 60.0
"""How long an entry waits for who writes; longer than a change of that server takes."""
PENDING_MAX: Final = 5_000
"""Entries that wait; the oldest are left out."""
SAME_MS: Final = 15_000
"""Two servers see one event at most so far apart."""
LOOK_S: Final = 0.5


class HistoryLog:
    """See the module. `run` must run. `leads`: is this the one server that writes?"""

    def __init__(self, config: KafkaConfig, clock: Clock, leads: Callable[[], bool]) -> None:
        self.past = Past(clock.now_ms, write=self._put)
        self._clock = clock
        self._leads = leads
        self._producer = clients.producer(config, "ops-history")
        self._pending: deque[Noted] = deque(maxlen=PENDING_MAX)
        self._has_led = False

    def take(self, change: Change) -> None:
        """A record of `ew.history`; one that cannot be read is left out."""
        try:
            self.past.take(change.offset + 1, Noted.model_validate_json(change.value or b""))
        except ValidationError as error:
            log.debug("%s, offset %d: %s", topics.HISTORY, change.offset, error)

    def _put(self, one: Noted) -> None:
        self._pending.append(one)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._clock.sleep(LOOK_S)
            self._producer.poll(0)
            if self._leads():
                self._write_pending(is_new=not self._has_led)
            self._has_led = self._leads()
            self._forget_old()

    def _write_pending(self, *, is_new: bool) -> None:
        while self._pending:
            one = self._pending[0]
            if is_new and self.past.has(one, within_ms=SAME_MS):
                self._pending.popleft()
                continue
            try:
                self._producer.produce(
                    topics.HISTORY, value=one.model_dump_json().encode(), partition=0
                )
            except (BufferError, KafkaException) as error:  # at the next look
                log.debug("history waits: %s", error)
                return
            self._pending.popleft()

    def _forget_old(self) -> None:
        oldest = self._clock.now_ms() - PENDING_S * 1000
        while self._pending and self._pending[0].at < oldest:
            self._pending.popleft()

    def close(self) -> None:
        """Wait up to a second for what is being written."""
        self._producer.flush(1)
