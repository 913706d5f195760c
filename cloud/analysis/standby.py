"""Waits until this analysis may start.

That is when no other process uses its folder, Kafka is reachable and gives it the lead.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from edgewake.cloud.analysis import data_dir_lock
from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.leadership import Leadership, Role
from edgewake.protocol import topics
from edgewake.protocol.backoff import Backoff
from edgewake.protocol.errors import Unavailable

log = logging.getLogger("edgewake.analysis")

LOOK_EVERY_S: Final = 0.2


@dataclass
class Standby:
    """`wait` until this analysis leads, or is stopped."""

    config: AnalysisConfig
    rng: random.Random
    stop: threading.Event
    beat: Callable[[], None]
    """Called whenever the loop turns: a sign of life."""
    on_ready: Callable[[], None] = lambda: None
    """Called once, when this analysis is ready to take over."""
    monotonic: Callable[[], float] = time.monotonic
    said: set[str] = field(default_factory=set)
    """Why it stands by, all that it was."""
    is_ready: bool = False
    """Was it said that this analysis is ready to take over?"""

    def wait(self) -> Leadership | None:
        """The lead, for as long as this process lives; None where it was stopped before.

        Raises LocalError.
        """
        if not self._has_folder() or not self._has_kafka():
            return None
        leadership = Leadership(
            self.config.kafka,
            data_dir_lock.name_of(self.config.data_dir),
            what="analysis",
            topic=topics.LANES,
            group=topics.ANALYSIS_GROUP,
            session_s=self.config.session_s,
        )
        stands_by_since: float | None = None
        while not self.stop.is_set():
            self.beat()
            leadership.poll(LOOK_EVERY_S)
            if leadership.leads() and self._has_kept():
                log.info("this analysis leads", extra={"event": "analysis.leads"})
                return leadership
            if leadership.role is not Role.STANDBY:
                stands_by_since = None
                continue
            if stands_by_since is None:
                stands_by_since = self.monotonic()
            # Kafka gives the lead of a process that was killed away after a session only. Until
            # then nobody may compute at all, so a waiting process does not count as a standby.
            is_alive = self.monotonic() - stands_by_since > self.config.session_s
            self._say(
                "another analysis leads; one that is not heard of for "
                f"{self.config.session_s:g} s is replaced",
                is_ready=is_alive,
            )
        leadership.close()
        return None

    def _has_folder(self) -> bool:
        while not self.stop.is_set():
            self.beat()
            if data_dir_lock.lock(self.config.data_dir) is not None:  # held until the process ends
                return True
            self._say(f"another process uses {self.config.data_dir}")
            self.stop.wait(LOOK_EVERY_S)
        return False

    def _has_kept(self) -> bool:
        """May this leader use the shared checkpoints?

        An analysis that hangs may still write them: a leader waits until that process has ended.
        """
        kept = self.config.kept_dir
        if kept == self.config.data_dir or data_dir_lock.lock(kept) is not None:
            return True
        self._say(f"it leads, and another process still uses {kept}")
        return False

    def _has_kafka(self) -> bool:
        backoff, is_said = Backoff(self.rng), False
        while not self.stop.is_set():
            self.beat()
            try:
                topic_admin.ensure_topics(self.config.kafka, [topics.LANES])
                return True
            except Unavailable as error:
                if not is_said:
                    log.warning("waits for Kafka: %s", error, extra={"event": "kafka.away"})
                    is_said = True
                self.stop.wait(backoff.next_s())
        return False

    def _say(self, why: str, *, is_ready: bool = True) -> None:
        """Each reason once, and once that this analysis is ready to take over."""
        if why not in self.said:
            self.said.add(why)
            log.info("stands by: %s", why, extra={"standby": True, "event": "analysis.standby"})
        if is_ready and not self.is_ready:
            self.is_ready = True
            self.on_ready()
            log.info("ready to take over: %s", why, extra={"standby": True, "event": "part.ready"})
