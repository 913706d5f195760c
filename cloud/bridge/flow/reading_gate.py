"""Decides whether a bridge reads from the broker: back-pressure from Kafka and the sequencer.

It stops where too much is in flight, where Kafka's client has no room, while the sequencer is too
far behind, and when the bridge drains. It starts again at half of the in-flight bound, unless one
of these still holds. No I/O: `apply` opens and closes the sessions' sockets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from edgewake.cloud.bridge.kafka_writer import KafkaWriter
from edgewake.cloud.bridge.metrics import BridgeMetrics
from edgewake.cloud.bridge.mqtt.ack_ledger import InFlight

log = logging.getLogger("edgewake.bridge")

BEHIND: Final = "the sequencer is too far behind: nothing is accepted until it has caught up"


class ReadingGate:
    """Whether the bridge reads, and why it does not."""

    def __init__(
        self,
        in_flight: InFlight,
        writer: KafkaWriter,
        metrics: BridgeMetrics,
        apply: Callable[[bool], None],
    ) -> None:
        """`apply` makes all sessions read, or stop."""
        self._in_flight = in_flight
        self._writer = writer
        self._metrics = metrics
        self._apply = apply
        self.is_paused = False
        self.is_draining = False
        """The bridge stops for good."""
        self.is_held_back = False
        """The sequencer is too far behind."""

    @property
    def is_closed(self) -> bool:
        """Whether no further message may be accepted."""
        return self.is_paused or self.is_draining or self.is_held_back

    def pause_where_full(self) -> None:
        """Stops reading at a bound: the one of messages in flight, or of Kafka's client."""
        if self.is_paused:
            return
        if self._in_flight.is_full:
            self._metrics.waits["full"] += 1
            self._set(False)
        elif self._writer.is_blocked:
            self._metrics.waits["queue"] += 1
            self._set(False)

    def resume_where_room(self, *, is_waiting: bool) -> None:
        """Reads again where there is room; `is_waiting`: rows wait that go first."""
        if not self.is_paused or self.is_draining or self.is_held_back or is_waiting:
            return
        if self._in_flight.has_room and not self._writer.is_blocked:
            self._set(True)

    @property
    def lets_rows_out(self) -> bool:
        """Whether rows that wait for room may be written now."""
        return self.is_draining or not self.is_paused or self._in_flight.has_room

    def hold_back(self, wanted: bool) -> None:
        """Stops reading while the sequencer is too far behind, or lets it go on."""
        if wanted == self.is_held_back:
            return
        self.is_held_back = self._metrics.held_back = wanted
        if wanted:
            self._metrics.waits["behind"] += 1
            self._set(False)
        log.log(
            logging.ERROR if wanted else logging.INFO,
            BEHIND if wanted else "the sequencer has caught up",
            extra={"event": "bridge.held_back" if wanted else "bridge.goes_on"},
        )

    def drain(self) -> None:
        """Stops reading for good."""
        self.is_draining = True
        self._set(False)

    def _set(self, wanted: bool) -> None:
        self.is_paused = not wanted
        self._apply(wanted)
