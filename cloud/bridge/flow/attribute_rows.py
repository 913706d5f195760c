"""Rows of `ew.attributes` that wait until Kafka's client has room. No I/O.

Only the newest row of a device waits, so they are at most as many as devices that the bridge
remembers.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from edgewake.cloud.bridge.admission.records import KafkaRecord
from edgewake.cloud.bridge.kafka_writer import KafkaWriter
from edgewake.protocol import topics

ROWS_AT_ONCE: Final = 500
"""The most rows that one turn of the pump writes, so that messages are not kept waiting."""


class AttributeRows:
    """The rows that wait, oldest change first."""

    def __init__(self, writer: KafkaWriter, now_ms: Callable[[], int]) -> None:
        self._writer = writer
        self._now_ms = now_ms
        self._rows: dict[str, bytes | None] = {}
        """Device → its newest row; at most as many as devices that the bridge remembers."""

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, device: str, value: bytes | None) -> None:
        """Adds a row in place of the device's earlier one; None removes it from the topic."""
        self._rows.pop(device, None)
        self._rows[device] = value

    def write(self) -> None:
        """Writes rows as long as Kafka's client has room."""
        for device in [*islice(self._rows, ROWS_AT_ONCE)]:
            if self._writer.is_blocked:
                return
            value = self._rows.pop(device)
            record = KafkaRecord(topics.ATTRIBUTES, device, value, [], self._now_ms())
            self._writer.write(record, None)
