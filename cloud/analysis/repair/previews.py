"""Previews that were asked for over the API: one at a time, in a thread beside the lanes and repairs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import orjson
from confluent_kafka import KafkaException, Producer
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from edgewake.cloud.analysis.lanes.failure_causes import cause_of
from edgewake.cloud.analysis.repair.preview import preview
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import EdgewakeError
from edgewake.protocol.preview import ANSWER_CHARS_MAX, WAIT_MS, Preview
from edgewake.protocol.stream import Stream

log = logging.getLogger("edgewake.analysis")

POOL: Final = "previews"
CLOSE_S: Final = 1.0
ERROR_CHARS_MAX: Final = 2000
"""Characters of the reason that is told; Spark wraps an error in others."""
_FAULTS: Final = (EdgewakeError, KafkaException, OSError, PySparkException, Py4JError, ArithmeticError, LookupError, TypeError, ValueError)


class Previews:
    """All that wait. `on_row` and `turn` belong to one thread."""

    def __init__(
        self, session: SparkSession, kafka: KafkaConfig, producer: Producer, clock: Clock, foreign_topics: Collection[str] = ()
    ) -> None:
        self._foreign = foreign_topics
        self._session, self._kafka, self._producer, self._clock = session, kafka, producer, clock
        self._asked: dict[str, Preview] = {}
        self._worker: threading.Thread | None = None

    def on_row(self, key: str, value: bytes | None) -> None:
        """A record of `ew.previews`; ValueError where it cannot be read."""
        row = None if value is None else Preview.model_validate_json(value)
        if row is None or row.is_answered:
            self._asked.pop(key, None)
        else:
            self._asked[key] = row

    def turn(self, streams: Mapping[str, Stream]) -> None:
        """Begin the next one, unless one is under way. `streams`: the catalogue."""
        if not self._asked or (self._worker is not None and self._worker.is_alive()):
            return
        now_ms = self._clock.now_ms()
        self._asked = {key: row for key, row in self._asked.items() if row.asked_at > now_ms - WAIT_MS}
        if self._asked:
            asked = self._asked.pop(min(self._asked, key=lambda key: self._asked[key].asked_at))
            self._worker = threading.Thread(target=self._answer, args=(asked, dict(streams)), name="preview", daemon=True)
            self._worker.start()

    def close(self) -> None:
        """Leave; who waits is told nothing, and asks again."""
        if self._worker is not None:
            self._worker.join(CLOSE_S)

    def _answer(self, asked: Preview, streams: Mapping[str, Stream]) -> None:
        try:
            self._session.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
            now_ms = self._clock.now_ms()
            rows = preview(self._session, self._kafka, asked.text, streams, since_ms=asked.since, now_ms=now_ms, foreign=self._foreign)
            texts, is_cut = bounded(rows, asked.rows_max)
            answer: dict[str, Any] = {"rows": texts, "is_cut": is_cut}
        except _FAULTS as error:
            log.warning("preview failed: %s", cause_of(error)[:500], extra={"event": "preview.failed"})
            answer = {"error": cause_of(error)[:ERROR_CHARS_MAX]}
        self._producer.produce(topics.PREVIEWS, asked.model_copy(update=answer).model_dump_json().encode(), asked.id)
        self._producer.flush(10)


def bounded(rows: Iterator[dict[str, Any]], rows_max: int) -> tuple[tuple[str, ...], bool]:
    """The first results as JSON, and are there more?"""
    texts: list[str] = []
    chars = 0
    for row in rows:
        text = orjson.dumps(row).decode()
        chars += len(text)
        if len(texts) >= rows_max or chars > ANSWER_CHARS_MAX:
            return tuple(texts), True
        texts.append(text)
    return tuple(texts), False
