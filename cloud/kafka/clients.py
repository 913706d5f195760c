"""The one place that makes Kafka producers and consumers.

Every producer is idempotent with acks=all; every consumer reads committed records only and never
commits by itself. So what a reader of `ew.s.*` or `ew.q.*` sees is final, once and in order:
repeats are removed before, never after.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from edgewake.cloud.kafka.config import RECORD_BYTES_MAX, KafkaConfig
from edgewake.cloud.kafka.mortal import Admin, Mortal
from edgewake.cloud.kafka.security import client_settings, explain
from edgewake.protocol.errors import Unavailable

log = logging.getLogger("edgewake.kafka")


RECONNECT_MS_MAX: Final = 1_000
"""Between two attempts to reach a Kafka that is away. librdkafka's own ten seconds were the longest
part of the time from when it is back to when windows go on; twenty clients that try once a second
are nothing to a Kafka that starts."""


def producer(config: KafkaConfig, client_id: str, **more: Any) -> Producer:
    """An idempotent producer, acks=all.

    `linger.ms` 2 trades 2 ms for fewer requests; poll it for delivery reports.
    """
    return Producer(
        {
            **_connection(config),
            "client.id": client_id,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "compression.type": "lz4",
            "message.max.bytes": RECORD_BYTES_MAX,
            "partitioner": "murmur2_random",
        }
        | more
    )


def transactional_producer(
    config: KafkaConfig, transactional_id: str, *, timeout_ms: int = 10_000, **more: Any
) -> Producer:
    """A producer that writes in transactions; a new one with the same id fences the old.

    Call `fence` first.

    `timeout_ms`: how long readers wait for the transaction of a process that died and is not
    replaced.
    """
    return producer(
        config,
        transactional_id,
        **{
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": timeout_ms,
            # A commit does not wait for it; until then a batch may grow.
            "linger.ms": 5,
            # The broker still writes the last transaction's markers when the next one begins and
            # says "concurrent transactions": with the default of 100 ms a busy writer commits 10
            # times a second, with 5 ms 120 times.
            "retry.backoff.ms": 5,
        }
        | more,
    )


def fence(transactional: Producer, timeout_s: float) -> None:
    """Shut out all earlier producers with its id, and end what they left open.

    Raises KafkaException.
    """
    # Where no broker is connected yet, librdkafka looks again after half a second. The first
    # question connects the address that we have, and then the brokers that the answer names take
    # its place; the second one is answered by one of those.
    for _ in range(2):
        transactional.list_topics(timeout=timeout_s)
    transactional.init_transactions(timeout_s)


FOLLOWER_WAIT_MS: Final = 500
"""How long Kafka holds back a fetch that finds nothing, for a consumer that follows a topic without
seeking in it; a record ends the wait at once. Each asks that often while nothing changes: a small
system has twenty such consumers, which with 200 ms were a third of all requests to Kafka. The end
of a table that is written in transactions is seen with this delay when it is read at the start."""
HANDED_OVER_WAIT_MS: Final = 200
"""The wait of a fetch where a group hands partitions over: a partition that arrives meanwhile is
read only after it."""
ONCE_WAIT_MS: Final = 20
"""The wait of a fetch for a table that is read once to its end."""


def consumer(
    config: KafkaConfig, client_id: str, *, group: str | None = None, **more: Any
) -> Consumer:
    """A consumer of committed records.

    Without `group` it is assigned by hand and has no offsets of its own.
    """
    return Consumer(
        {
            **_connection(config),
            "client.id": client_id,
            "group.id": group or f"{client_id}-unused",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error" if group is None else "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": False,
            "fetch.wait.max.ms": 20,
            # A reader that filled its queue and emptied it is otherwise left without records for up
            # to a second.
            "fetch.queue.backoff.ms": 5,
            "fetch.message.max.bytes": RECORD_BYTES_MAX,
            "queued.max.messages.kbytes": 16_384,
        }
        | more
    )


def admin(config: KafkaConfig, what: str = "admin") -> Admin:
    """A client that makes and describes topics; it is replaced after it failed for a while.

    `what` it is for, for the log.
    """
    return Admin(lambda: AdminClient(_connection(config)), what)


def asked_consumer(
    config: KafkaConfig, client_id: str, *, group: str | None = None, **more: Any
) -> Mortal[Consumer]:
    """A consumer that answers questions and does not follow.

    It is replaced after failing a while.
    """
    return Mortal(
        client_id, lambda: consumer(config, client_id, group=group, **more), Consumer.close
    )


def _connection(config: KafkaConfig) -> dict[str, Any]:
    """Where Kafka is and who we are.

    Raises ConfigError where a file of `kafka.security` cannot be read.
    """
    return {
        "bootstrap.servers": config.bootstrap,
        "error_cb": partial(_on_error, config),
        "reconnect.backoff.max.ms": RECONNECT_MS_MAX,
        "log_level": 2,  # `error_cb` logs what matters, less often
        **client_settings(config.security),
    }


def away(config: KafkaConfig, error: KafkaError) -> Unavailable:
    """The error that Kafka does not answer, with the last security problem that was found.

    librdkafka then only reports a time-out.
    """
    why = _refusals.get(config.bootstrap)
    return Unavailable(f"Kafka at {config.bootstrap}: {error.str() if why is None else why}")


LOG_AGAIN_S: Final = 30.0
"""Seconds before the same trouble is logged again: librdkafka reports every failed attempt."""
_logged: dict[str, float] = {}
_refusals: dict[str, str] = {}
"""Bootstrap → what is wrong with our security there."""


def _on_error(config: KafkaConfig, error: KafkaError) -> None:
    why = explain(error.name(), error.str(), config.security)
    if why is not None:
        _refusals[config.bootstrap] = why
    now = time.monotonic()
    if now - _logged.get(error.name(), -LOG_AGAIN_S) >= LOG_AGAIN_S:
        _logged[error.name()] = now
        log.warning(
            "Kafka: %s",
            error.str() if why is None else why,
            extra={"event": "kafka.error", "code": error.name()},
        )


@contextlib.contextmanager
def fatal_errors() -> Iterator[None]:
    """Raise fatal errors of delivery callbacks as KafkaException.

    It is for calls that run those of a transactional producer.

    The client raises a fatal error out of its own error callback. Is a delivery reported in the
    same call, Python sees a callback that returns while an exception is set, and makes a
    SystemError of it.
    """
    try:
        yield
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        raise


def is_fenced(error: KafkaError) -> bool:
    """Has another process with our name taken over? Then this one must end."""
    return error.code() in _FENCED


_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
)
