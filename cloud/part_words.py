"""A part tells of itself: its name, version, uptime and state, every few seconds, to Kafka.

So operations sees the parts of a system without a supervisor of ours (systemd, containers): what
says nothing more is silent, which is a problem there. Under `edgewake up` the supervisor tells of
its parts, and they say nothing. Nothing is queued while Kafka is away; the next word says all.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.process_metrics import VERSION
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import EdgewakeError
from edgewake.protocol.ops.part_status import EVERY_S, SUPERVISED, record_of

log = logging.getLogger("edgewake.part")

LAST_S: Final = 0.5
"""Seconds that the last word may take at the stop."""
OPENING_S: Final = 0.5
"""Seconds between two looks whether Kafka is there, before the first word."""
DETAIL_CHARS_MAX: Final = 300
"""Characters of the reason why a part is not ready."""
_PRODUCER: Final = {
    "message.timeout.ms": round(EVERY_S * 1000),  # after that there is a newer one
    "queue.buffering.max.messages": 10,
}


class PartWords:
    """The words of one part. One thread, or one event loop, at a time."""

    def __init__(
        self,
        config: KafkaConfig,
        kind: str,
        name: str,
        clock: Clock,
        *,
        why_not_ready: Callable[[], str] = lambda: "",
        is_alive: Callable[[], bool] = lambda: True,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """`kind`: e.g. bridge; `name`: its stable name, e.g. bridge-1.

        `is_alive`: does its main loop turn? For who tells from another thread.
        """
        self.is_wanted = not environ.get(SUPERVISED)
        self._config, self._kind, self._name, self._clock = config, kind, name, clock
        self._why_not_ready, self._is_alive = why_not_ready, is_alive
        self._host = socket.gethostname()
        self._began_s = clock.monotonic_s()
        self._producer: Producer | None = None
        self._is_refused = False

    async def run(self) -> None:
        """Tell until cancelled, and then that it stops."""
        if not self.is_wanted:
            return
        opening = self._opening()
        try:
            while True:
                if self._producer is None and not opening.is_alive():
                    opening = self._opening()
                self.tell()
                await self._clock.sleep(OPENING_S if self._producer is None else EVERY_S)
        finally:
            self.close()

    def _opening(self) -> threading.Thread:
        """A thread that the process' end does not wait for: Kafka may be away."""
        thread = threading.Thread(target=self.open, name="part words", daemon=True)
        thread.start()
        return thread

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Tell from a thread of its own meanwhile, and then that it stops."""
        if not self.is_wanted:
            yield
            return
        stop = threading.Event()
        thread = threading.Thread(target=self._until, args=(stop,), name="part words", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(LAST_S + 1.0)

    def _until(self, stop: threading.Event) -> None:
        while not stop.is_set():
            if self._producer is None:
                self.open()
            self.tell()
            stop.wait(EVERY_S)
        self.close()

    def open(self) -> None:
        """Make the topic, or find that it is there; nothing where Kafka is away."""
        try:
            topic_admin.ensure_topics(self._config, [topics.PARTS])
            self._producer = clients.producer(self._config, f"{self._name}-words", **_PRODUCER)
        except (EdgewakeError, KafkaException) as error:
            self._refused(str(error))

    def tell(self) -> None:
        """Say how it is."""
        why = self._why_not_ready()[:DETAIL_CHARS_MAX]
        if not self._is_alive():
            self._say("hangs", "its main loop does not turn")
        else:
            self._say("not ready" if why else "ready", why)

    def close(self) -> None:
        """Say that it stops."""
        if self._producer is not None:
            self._say("stopped", "")
        if self._producer is not None:
            self._producer.flush(LAST_S)
            self._producer = None

    def _say(self, state: str, detail: str) -> None:
        if self._producer is None:
            return
        now_ms = self._clock.now_ms()
        fields: dict[str, object] = {
            "part": self._name,
            "kind": self._kind,
            "host": self._host,
            "state": state,
            "detail": detail,
            "pid": os.getpid(),
            "uptime_s": round(self._clock.monotonic_s() - self._began_s, 1),
            "version": VERSION,
            "t": now_ms,
        }
        value = record_of(self._name, fields, now_ms)
        try:
            self._producer.produce(topics.PARTS, value, self._name, on_delivery=self._delivered)
            self._producer.poll(0)
        except BufferError:
            log.debug("Kafka is away: a word of this part is left out")
        except KafkaException as error:  # for good: the next word has another producer
            self._refused(str(error))
            self._producer = None

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._refused(error.str())

    def _refused(self, why: str) -> None:
        """Logged once: what it works with is Kafka, too, and says by itself when that is away."""
        level = logging.DEBUG if self._is_refused else logging.INFO
        log.log(level, "cannot tell of itself: %s", why, extra={"event": "part.untold"})
        self._is_refused = True
