"""Follows how far the sequencers are, in a thread of its own.

So a Kafka that answers late holds up no lane.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from confluent_kafka import KafkaException

from edgewake.cloud.analysis.lanes.upstream_hold import Sequenced
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.up_places import UNANSWERED, UpPlaces
from edgewake.protocol.clock import Clock, moment

log = logging.getLogger("edgewake.analysis")

LOOK_S: Final = 2.0
"""Seconds between two looks, of two questions each: as often as the sequencers say where they
are."""
AGAIN_S: Final = 0.5
"""The wait after a failed attempt: windows wait for the next one when Kafka is back."""
CLOSE_S: Final = 1.0


class SequencerWatch:
    """Looks from `start` to `close`; `hold` may be asked at any time by any thread."""

    def __init__(self, config: KafkaConfig, clock: Clock) -> None:
        self._config, self._clock = config, clock
        self._sequenced = Sequenced()
        self._failed_by = ""
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sequencer-watch", daemon=True)

    def start(self) -> None:
        """Start to watch the sequencers."""
        self._thread.start()

    def hold(self, now_ms: int) -> int | None:
        """Event time that must not be passed, if any."""
        with self._lock:
            return self._sequenced.hold(now_ms)

    def why(self, now_ms: int) -> str:
        """Why event time is held, for people; empty where it is not."""
        with self._lock:
            since_ms = self._sequenced.held_since(now_ms)
        if since_ms is None:
            return ""
        since = moment(since_ms)
        return f"event time is held back: records have waited for a sequencer since {since}"

    def troubles(self, now_ms: int) -> dict[str, str | None]:
        """Returns what holds event time back, by its name in the analysis' health, or None."""
        failed_by = self._failed_by
        unknown = f"the sequencers' positions are unknown: {failed_by}" if failed_by else None
        return {"hold": self.why(now_ms) or None, "sequencers": unknown}

    def close(self) -> None:
        """Stops the thread."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        places = UpPlaces(self._config, "analysis-sequencers")
        failed = 0
        while not self._closed.is_set():
            try:
                # In this order: what was passed on before the end was asked for is never taken for
                # something that waits.
                ends, sequenced = places.ends(), places.sequenced()
            except KafkaException as error:
                failed += 1
                text = self._failed_by = error.args[0].str()
                if failed == UNANSWERED:
                    log.warning(
                        "the sequencers' positions are unknown: %s",
                        text,
                        extra={"event": "analysis.sequencers_unknown"},
                    )
            else:
                failed, self._failed_by = 0, ""
                with self._lock:
                    self._sequenced.look(self._clock.now_ms(), ends, sequenced)
            self._closed.wait(AGAIN_S if failed else LOOK_S)
        places.close()
