"""The analysis' part of erasures: it removes minutes of a stream from Parquet.

It does nothing twice: a row on `ew.erasures` says when it is done.
"""

from __future__ import annotations

import logging
from functools import partial

from confluent_kafka import KafkaError, Message, Producer

from edgewake.cloud.analysis.minutes.minute_lake import Lake
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.ops.erasure import Erasure, Report, Step, report_key

log = logging.getLogger("edgewake.analysis")

PART = "analysis"


class Erasing:
    """`on_row` takes rows of `ew.erasures`, `turn` does what is due. Not for several threads."""

    def __init__(self, lake: Lake, producer: Producer, clock: Clock) -> None:
        self._lake, self._producer, self._clock = lake, producer, clock
        self._due: dict[str, Erasure] = {}
        self._done: set[str] = set()

    def on_row(self, key: str, value: bytes | None) -> None:
        """Takes a row of `ew.erasures`. Raises ValueError where it cannot be read."""
        id_, _, part = key.partition("|")
        if part == PART and value is not None:
            self._done.add(id_)
        if part:
            return
        self._due.pop(id_, None)
        row = None if value is None else Erasure.model_validate_json(value)
        if row is not None and row.step is Step.ANALYSIS:
            self._due[id_] = row

    def _on_delivery(self, id_: str, error: KafkaError | None, _: Message) -> None:
        if error is not None:  # What is erased again is erased already; its report goes out.
            self._done.discard(id_)

    def turn(self) -> None:
        """Erase what is due; what fails is tried again the next time."""
        self._producer.poll(0)
        for id_, row in list(self._due.items()):
            if id_ in self._done:
                continue
            try:
                files, rows = self._lake.erase(row.name, row.deleted_at or row.asked_at)
            except OSError as error:
                log.warning(
                    "minutes of %s are not erased yet: %s", row.name, error,
                    extra={"event": "lake.disk"},
                )  # fmt: skip
                return
            report = Report(files=files, rows=rows, at=self._clock.now_ms())
            key = report_key(id_, PART)
            self._producer.produce(
                topics.ERASURES,
                report.model_dump_json().encode(),
                key,
                on_delivery=partial(self._on_delivery, id_),
            )
            self._done.add(id_)
            self._producer.poll(0)
            log.info(
                "erased minutes of %s: %d rows in %d files", row.name, rows, files,
                extra={"event": "lake.erased", "erasure": id_},
            )  # fmt: skip
