"""Frames that will never get through.

They leave the session at once, and the log when their bytes are in quarantine.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial

from edgewake.edge.daemon_thread import in_daemon_thread
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.keeping.work import OutFrame
from edgewake.edge.uplink.quarantine import Quarantine
from edgewake.edge.uplink.session import UplinkSession
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import RejectReason

log = logging.getLogger("edgewake.uplink")


class Refused:
    """Those that are on their way there."""

    def __init__(
        self, session: UplinkSession, events: EventLog, quarantine: Quarantine, clock: Clock
    ) -> None:
        self._session = session
        self._events = events
        self._quarantine = quarantine
        self._clock = clock
        self._waiting: deque[tuple[OutFrame, RejectReason, str]] = deque()
        """At most a window of frames."""
        self.quarantined = 0
        """Frames, since the start."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, frame: OutFrame, reason: RejectReason, why: str) -> bool:
        """Take it out of the session; False where it is not there."""
        if self._session.refuse(frame.key, reason, why) is None:
            return False
        self._waiting.append((frame, reason, why))
        return True

    async def keep(self) -> None:
        """The bytes first, the gap in their place second."""
        while self._waiting:
            frame, reason, why = self._waiting[0]
            key = frame.key
            try:
                await in_daemon_thread(
                    partial(self._quarantine.keep, frame, why=why, now_ms=self._clock.now_ms()),
                    name="quarantine",
                )
            except OSError as error:
                log.error(
                    "frame %s cannot be kept in quarantine: %s",
                    key,
                    error,
                    extra={"event": "uplink.quarantine_failed"},
                )
            self._waiting.popleft()
            self._events.free(key, reason)
            self.quarantined += 1
            log.error(
                "frame %s/%d/%d with %d readings cannot be sent and was taken out: %s", key.stream,
                key.epoch, key.frame, frame.count, why,
                extra={"event": "uplink.quarantined", "stream": key.stream, "readings": frame.count,
                    "reason": reason.value},
            )  # fmt: skip
