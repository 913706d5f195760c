"""Gives records to Kafka's client and reports what became of each. Not for several threads.

Kafka's client sends several records in one batch, and where the batch is over the topic's bound
every record in it is refused as too large. So a record that is refused by its size is sent again in
a batch of its own, and only what is refused there is too large.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from edgewake.cloud.bridge.admission.records import KafkaRecord
from edgewake.cloud.bridge.load import Load
from edgewake.cloud.bridge.mqtt.ack_ledger import Delivery
from edgewake.cloud.kafka.config import UP_BATCH_BYTES
from edgewake.protocol.errors import LocalError

GATHER_S: Final = 0.02
"""Seconds that records are gathered for under load: at 20 000 a second six in each partition's
batch, at 1 000 twenty in a request."""
PRODUCER: Final[dict[str, Any]] = {
    # joins what one read of the socket brought; under load records are gathered before (GATHER_S)
    "linger.ms": 2,
    "batch.size": UP_BATCH_BYTES,
    # `ew.up` is kept for a day. Compressed it needs half of the disk, and Kafka a quarter more
    # processor time: it unpacks each batch to check it, and under little load one is one record.
    "compression.type": "none",
    "message.timeout.ms": 0,  # for ever: the broker's in-flight bound is what ends the waiting
    # above the in-flight bound, so that it is not the queue that fills
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 256 * 1024,
    "topic.metadata.refresh.interval.ms": 30_000,
    "delivery.report.only.error": False,
}
ALONE: Final[dict[str, Any]] = PRODUCER | {"linger.ms": 0, "batch.num.messages": 1}
"""Settings of the producer that sends each record in a batch of its own."""

_TOO_LARGE: Final = frozenset(
    {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE, KafkaError.RECORD_LIST_TOO_LARGE}
)


class KafkaWriter:
    """Writes records, and reports each by `on_stored` or `on_too_large`.

    They are `on_stored(record, delivery, partition, offset)` and `on_too_large(record, delivery,
    why)`. Both are called inside `poll`, the second also inside `write`. A record without a
    delivery is not reported.
    """

    def __init__(
        self,
        producer: Producer,
        *,
        alone: Callable[[], Producer],
        on_stored: Callable[[KafkaRecord, Delivery, int, int], None],
        on_too_large: Callable[[KafkaRecord, Delivery | None, str], None],
    ) -> None:
        self._producer = producer
        self._make_alone = alone
        self._alone: Producer | None = None
        self._on_stored = on_stored
        self._on_too_large = on_too_large
        self._waiting: deque[tuple[KafkaRecord, Delivery | None]] = deque()
        """Gathered, or in want of room in the client's queue. What is here is in flight and bounded
        as such."""
        self._load = Load(GATHER_S)
        self._is_full = False
        self._failure: LocalError | None = None
        self.unconfirmed = 0
        """Records that Kafka has neither confirmed nor refused, also those without a delivery."""
        self.sent_alone = 0
        """Records that were refused in a batch and sent again alone."""

    @property
    def is_blocked(self) -> bool:
        """Do records wait for room in the client's queue? Then reading stops."""
        return self._is_full

    def write(self, record: KafkaRecord, delivery: Delivery | None) -> None:
        """Give a record to Kafka's client, at once or in a batch.

        It waits where the client is full.
        """
        self._load.note()
        self.unconfirmed += 1
        if (
            self._waiting
            or self._load.is_high
            or not self._produced(self._producer, record, delivery)
        ):
            self._waiting.append((record, delivery))

    def poll(self, now_s: float) -> None:
        """Report what Kafka confirmed or refused, and send what is due.

        Raises LocalError when Kafka refuses for good.
        """
        self._producer.poll(0)
        if self._alone is not None:
            self._alone.poll(0)
        if self._load.look(now_s) or not self._load.is_high or self._is_full:
            waiting = self._waiting
            while waiting and self._produced(self._producer, *waiting[0]):
                waiting.popleft()
            self._is_full = bool(waiting)
        if self._failure is not None:
            raise self._failure

    def _produced(self, producer: Producer, record: KafkaRecord, delivery: Delivery | None) -> bool:
        is_alone = producer is not self._producer
        try:
            producer.produce(
                record.topic,
                record.value,
                record.key,
                on_delivery=partial(self._on_delivery, record, delivery, is_alone),
                timestamp=record.timestamp,
                headers=record.headers,
            )
        except BufferError:
            self._is_full = True
            return False
        except (
            KafkaException
        ) as error:  # over the client's own bound: refused before it is in any batch
            self._on_refusal(record, delivery, error.args[0], is_alone=True)
        return True

    def _on_delivery(
        self,
        record: KafkaRecord,
        delivery: Delivery | None,
        is_alone: bool,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        """Kafka's answer for one record."""
        if error is not None:
            self._on_refusal(record, delivery, error, is_alone=is_alone)
            return
        self.unconfirmed -= 1
        if delivery is not None:
            self._on_stored(record, delivery, message.partition() or 0, message.offset() or 0)

    def _on_refusal(
        self, record: KafkaRecord, delivery: Delivery | None, error: KafkaError, *, is_alone: bool
    ) -> None:
        """Report a record that is too large.

        Any other permanent error is ours and ends the process.
        """
        if error.code() not in _TOO_LARGE:
            self.fail(f"Kafka refuses a record for {record.topic}: {error.str()}")
        elif is_alone:
            self.unconfirmed -= 1
            self._on_too_large(record, delivery, f"{len(record.value or b'')} bytes: {error.str()}")
        else:
            self.sent_alone += 1
            self._alone = self._alone or self._make_alone()
            if not self._produced(self._alone, record, delivery):
                self._waiting.append((record, delivery))

    def fail(self, why: str) -> None:
        """The next `poll` raises LocalError with this reason."""
        self._failure = self._failure or LocalError(why)
