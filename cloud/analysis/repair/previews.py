"""Previews requested over the API: one at a time, in a thread beside the lanes and repairs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

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
from edgewake.protocol.frames.stream import Stream
from edgewake.protocol.ops.preview import ANSWER_CHARS_MAX, WAIT_MS, Preview

log = logging.getLogger("edgewake.analysis")

POOL: Final = "previews"
CLOSE_S: Final = 1.0
TELL_MS: Final = 5_000
"""A preview is cancelled this long before its client stops waiting, and the client gets an answer;
then the next one begins."""
STUCK_MAX: Final = 3
"""Cancelled previews that Spark has not ended yet. Beyond this number new ones are refused at once:
each holds memory."""
ERROR_CHARS_MAX: Final = 2000
"""Characters of the reason in the answer; Spark wraps an error in others."""
_FAULTS: Final = (
    EdgewakeError, KafkaException, OSError, PySparkException, Py4JError, ArithmeticError,
    LookupError, TypeError, ValueError,
    MemoryError, RecursionError,
)  # fmt: skip

Compute: TypeAlias = Callable[[Preview, Mapping[str, Stream]], Iterator[dict[str, Any]]]


@dataclass(eq=False)
class _Work:
    """A preview under way, in a thread of its own.

    A JVM that is out of memory may never answer a call.
    """

    asked: Preview
    thread: threading.Thread

    @property
    def group(self) -> str:
        """Spark's name for its jobs."""
        return f"preview-{self.asked.id}"


class Previews:
    """The previews that wait.

    `on_row` and `turn` belong to one thread. One that fails, or that takes too long, fails alone.
    """

    def __init__(
        self,
        session: SparkSession,
        kafka: KafkaConfig,
        producer: Producer,
        clock: Clock,
        foreign_topics: Collection[str] = (),
    ) -> None:
        self._foreign = foreign_topics
        self._session, self._kafka, self._producer, self._clock = session, kafka, producer, clock
        self._asked: dict[str, Preview] = {}
        self._work: _Work | None = None
        self._stuck: list[_Work] = []
        self._telling = threading.Lock()
        self.compute: Compute = self._computed

    def on_row(self, key: str, value: bytes | None) -> None:
        """A record of `ew.previews`; ValueError where it cannot be read."""
        row = None if value is None else Preview.model_validate_json(value)
        if row is None or row.is_answered:
            self._asked.pop(key, None)
        else:
            self._asked[key] = row

    def turn(self, streams: Mapping[str, Stream]) -> None:
        """Begin the next one, unless one is under way. `streams`: the catalogue."""
        self._give_up()
        if not self._asked or self._work is not None:
            return None
        now_ms = self._clock.now_ms()
        self._asked = {
            key: row for key, row in self._asked.items() if row.asked_at > now_ms - WAIT_MS
        }
        if not self._asked:
            return None
        asked = self._asked.pop(min(self._asked, key=lambda key: self._asked[key].asked_at))
        if len(self._stuck) >= STUCK_MAX:
            return self._tell(
                asked,
                {
                    "error": f"{STUCK_MAX} previews before did not end yet; ask again when the "
                    "analysis has ended them"
                },
            )
        thread = threading.Thread(
            target=self._answer, args=(asked, dict(streams)), name="preview", daemon=True
        )
        self._work = _Work(asked, thread)
        return thread.start()

    def _give_up(self) -> None:
        """Cancel a preview that takes too long, and answer its client.

        Spark is told to end it; the next preview need not wait for that.
        """
        self._stuck = [work for work in self._stuck if work.thread.is_alive()]
        with self._telling:
            work = self._work
            if work is None or self._clock.now_ms() < work.asked.asked_at + WAIT_MS - TELL_MS:
                return
            self._work = None
        self._stuck.append(work)
        log.warning(
            "preview given up", extra={"event": "preview.given_up", "stuck": len(self._stuck)}
        )
        limit_s = (WAIT_MS - TELL_MS) // 1000
        self._tell(
            work.asked,
            {
                "error": (
                    f"not computed within {limit_s} s; ask for fewer minutes or columns, or when "
                    "less is to do"
                )
            },
        )
        # A JVM that does not answer must not hold up the loop that looks after the lanes.
        cancel = self._session.sparkContext.cancelJobGroup
        threading.Thread(target=cancel, args=(work.group,), name="preview-end", daemon=True).start()

    def close(self) -> None:
        """End. A client that waits gets no answer, and asks again."""
        if self._work is not None:
            self._work.thread.join(CLOSE_S)

    def _answer(self, asked: Preview, streams: Mapping[str, Stream]) -> None:
        answer: dict[str, Any] = {"error": "it ended without a result; the analysis's log says why"}
        try:
            texts, is_cut = bounded(self.compute(asked, streams), asked.rows_max)
            answer = {"rows": texts, "is_cut": is_cut}
        except _FAULTS as error:
            log.warning(
                "preview failed: %s", cause_of(error)[:500], extra={"event": "preview.failed"}
            )
            answer = {"error": cause_of(error)[:ERROR_CHARS_MAX]}
        finally:
            with self._telling:
                is_waited_for = self._work is not None and self._work.asked is asked
                if is_waited_for:
                    self._work = None
            if is_waited_for:  # else the caller gave it up and was answered
                self._tell(asked, answer)

    def _computed(self, asked: Preview, streams: Mapping[str, Stream]) -> Iterator[dict[str, Any]]:
        context = self._session.sparkContext
        context.setLocalProperty("spark.scheduler.pool", POOL)
        context.setJobGroup(f"preview-{asked.id}", "a preview", interruptOnCancel=True)
        now_ms = self._clock.now_ms()
        yield from preview(
            self._session,
            self._kafka,
            asked.text,
            streams,
            since_ms=asked.since,
            now_ms=now_ms,
            foreign=self._foreign,
        )

    def _tell(self, asked: Preview, answer: Mapping[str, Any]) -> None:
        self._producer.produce(
            topics.PREVIEWS,
            asked.model_copy(update=dict(answer)).model_dump_json().encode(),
            asked.id,
        )
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
