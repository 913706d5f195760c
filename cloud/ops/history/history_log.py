"""Writes the history of events to `ew.history`, which every operations server reads.

All servers see the same events, and the one that judges alerts writes them. The others keep theirs
for PENDING_S, so that a successor writes what its predecessor did not. Nothing waits for Kafka:
what it does not confirm in time is dropped (entry_writer.py), and the log says how many that were.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from pydantic import ValidationError

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.ops.history.entry_writer import EntryWriter
from edgewake.cloud.ops.tables.past import Noted, Past
from edgewake.cloud.ops.tables.tables import Change
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock

log = logging.getLogger("edgewake.ops")

PENDING_S: Final = 60.0
"""Seconds that an entry waits for a writer, which is longer than a takeover."""
PENDING_MAX: Final = 5_000
"""The most entries that wait; of more the oldest are dropped."""
SAME_MS: Final = 15_000
"""The longest time between two servers' observations of one event, ms."""
LOOK_S: Final = 0.5


class HistoryLog:
    """Collects entries; its task `run` writes them while `leads` says that this server writes."""

    def __init__(self, config: KafkaConfig, clock: Clock, leads: Callable[[], bool]) -> None:
        self.past = Past(clock.now_ms, write=self._put)
        self._clock = clock
        self._leads = leads
        self._writer = EntryWriter(config, "ops-history", topics.HISTORY)
        self._pending: deque[Noted] = deque(maxlen=PENDING_MAX)
        self._has_led = False
        self._too_old = 0
        """Entries that waited too long, and that the log has not yet said."""

    def take(self, change: Change) -> None:
        """Applies a record of `ew.history`; an invalid one is skipped."""
        try:
            self.past.take(change.offset + 1, Noted.model_validate_json(change.value or b""))
        except ValidationError as error:
            log.debug("%s, offset %d: %s", topics.HISTORY, change.offset, error)

    def _put(self, one: Noted) -> None:
        self._pending.append(one)

    async def run(self) -> None:
        """Writes until cancelled."""
        while True:
            await self._clock.sleep(LOOK_S)
            self._writer.poll()
            if self._leads():
                self._write_pending(is_new=not self._has_led)
            self._has_led = self._leads()
            self._forget_old()

    def _write_pending(self, *, is_new: bool) -> None:
        if is_new:
            self._drop_written()
        while self._pending:
            one = self._pending[0]
            if not self._writer.put(one.model_dump_json().encode()):
                return  # the next turn tries again
            self._pending.popleft()

    def _drop_written(self) -> None:
        """Leaves out what the server wrote that led before."""
        times = [one.at for one in self._pending]
        if not times:
            return
        known = self.past.near(min(times) - SAME_MS, max(times) + SAME_MS)
        left = [
            one
            for one in self._pending
            if not any(abs(at - one.at) <= SAME_MS for at in known(one))
        ]
        self._pending.clear()
        self._pending.extend(left)

    def _forget_old(self) -> None:
        oldest = self._clock.now_ms() - PENDING_S * 1000
        while self._pending and self._pending[0].at < oldest:
            self._pending.popleft()
            self._too_old += self._has_led  # else another server has written it
        lost, self._too_old = self._writer.take_dropped() + self._too_old, 0
        if lost:
            log.warning(
                "Kafka was away: %d entries of the history are lost",
                lost,
                extra={"event": "ops.history_lost"},
            )

    def close(self) -> None:
        """Waits up to a second for what is being written."""
        self._writer.close()
