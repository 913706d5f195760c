"""Writes this server's audit to `ew.audit`, which every operations server reads.

The log has each entry first, and is the record. Kafka has what the pages show: who changed what,
at whichever server, before a restart, too. Nothing waits for Kafka: what it does not confirm in
time is dropped there (entry_writer.py), and the log says how many entries that were.
"""

from __future__ import annotations

import logging
from typing import Final

from pydantic import ValidationError

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.ops.history.entry_writer import EntryWriter
from edgewake.cloud.ops.tables.audit_ring import Audited, AuditEntry, AuditRing
from edgewake.cloud.ops.tables.tables import Change
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock

log = logging.getLogger("edgewake.ops")

EVENT: Final = "ops.audit"
SHOWN_S: Final = 1.0
"""The longest time that a reader waits for what this server has just written."""
POLL_S: Final = 0.02
LOOK_S: Final = 0.5


class AuditLog(logging.Handler):
    """A handler of the log that writes its audit to Kafka, and the entries of all servers."""

    def __init__(self, config: KafkaConfig, clock: Clock) -> None:
        super().__init__(logging.INFO)
        self._ring = AuditRing()
        self._clock = clock
        self._writer = EntryWriter(config, "ops-audit", topics.AUDIT)
        self._without_room = 0
        """Entries for which the writer had no room, and that the log has not yet said."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a log record to Kafka, if it belongs to the audit."""
        if getattr(record, "event", None) != EVENT:
            return
        facts = record.__dict__
        entry = Audited(
            at=round(record.created * 1000),
            holder=facts["holder"],
            method=facts["method"],
            path=facts["path"],
            status=facts["status"],
            detail=facts.get("detail", ""),
        )
        self._without_room += not self._writer.put(entry.model_dump_json().encode())

    def take(self, change: Change) -> None:
        """Applies a record of `ew.audit`; an invalid one is skipped."""
        try:
            self._ring.take(change.offset + 1, Audited.model_validate_json(change.value or b""))
        except ValidationError as error:
            log.debug("%s, offset %d: %s", topics.AUDIT, change.offset, error)

    async def newest(self, *, before: int | None, limit: int) -> list[AuditEntry]:
        """Returns entries, newest first; with `before` only those with a smaller number.

        Waits up to SHOWN_S until what this server wrote has come back, so that who changed
        something finds it here.
        """
        deadline_s = self._clock.monotonic_s() + SHOWN_S
        while self._clock.monotonic_s() < deadline_s:
            self._writer.poll()
            if not self._writer.is_writing and self._writer.written < self._ring.next:
                break
            await self._clock.sleep(POLL_S)
        return self._ring.newest(before=before, limit=limit)

    async def run(self) -> None:
        """Says what was dropped, until cancelled."""
        while True:
            await self._clock.sleep(LOOK_S)
            self._writer.poll()
            dropped = self._writer.take_dropped() + self._without_room
            self._without_room = 0
            if dropped:
                log.warning(
                    "Kafka was away: %d entries of the audit are in the log alone",
                    dropped,
                    extra={"event": "ops.audit_lost"},
                )

    def close(self) -> None:
        """Waits up to a second for what is being written."""
        self._writer.close()
        super().close()
