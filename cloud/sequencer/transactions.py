"""The Kafka transactions of one session, which also fence its shards' earlier process.

A process that dies leaves either all or nothing of a turn. Each session has a transactional id that
no other ever has. Before it reads anything of a shard it *claims* it: a row on the shard's
partition of `ew.sequence` that names the id. Then it fences every other id that is claimed there
(KIP-98): an open transaction is ended at once, and a process that slept and wakes cannot write.
What it reads afterwards, to the end of the partition as it is then, is all that there will ever be
of those before it. A session that gives a shard away takes its claim back, so that nobody has to
fence a process that goes on with other shards.

Claims are written outside of transactions: an open transaction hides what comes after it, and
nobody could tell which producer to fence if it hid its own claim.

Of two sessions that claim the same shard at the same time each finds the other's claim or is found
by it: claims are in the order of the partition, and the second reads all that is before its own.

The positions are on `ew.sequence` and not among the group's offsets: they belong to the state, they
cost a turn no second coordinator, and librdkafka 2.16 waits without end in
`send_offsets_to_transaction` when the group's coordinator was restarted. librdkafka speaks the
first version of the transaction protocol (no KIP-890), in which a commit that was delayed in the
network may end the *next* transaction of the same producer: after any time-out the session ends,
and the next one fences what is still on its way.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.delivery_reports import DeliveryReports
from edgewake.protocol import topics

log = logging.getLogger("edgewake.sequencer")

KAFKA_S: Final = 10.0
"""Seconds for one step of a transaction; as long as the broker keeps it open."""
_CLAIM: Final = "claim|"


def claim_key(transactional_id: str) -> str:
    """The key of the row that says who serves a shard."""
    return _CLAIM + transactional_id


def claimed_by(key: str) -> str | None:
    """The transactional id, if it is the key of such a row."""
    return key.removeprefix(_CLAIM) if key.startswith(_CLAIM) else None


class SessionTransactions:
    """The transactions of a session, one after the other; `shut_out` is for several threads."""

    def __init__(self, config: KafkaConfig, transactional_id: str) -> None:
        """Raises KafkaException."""
        self.id = transactional_id
        self._config = config
        self.producer: Producer = clients.transactional_producer(config, transactional_id)
        clients.fence(self.producer, KAFKA_S)
        self._claims = clients.producer(config, f"{transactional_id}-claims", **{"linger.ms": 0})
        self._fencing = threading.Lock()
        self._fenced: set[str] = set()

    def claim(self, shards: Collection[int]) -> None:
        """Claim shards: the next session to serve them must fence this one.

        Raises KafkaException.
        """
        self._write_claims(shards, b"1", KAFKA_S)

    def take_back(self, shards: Collection[int], timeout_s: float = KAFKA_S) -> None:
        """We will write nothing of them any more.

        Raises KafkaException; then the claims may stand.
        """
        self._write_claims(shards, None, timeout_s)

    def _write_claims(self, shards: Collection[int], value: bytes | None, timeout_s: float) -> None:
        reports = DeliveryReports()
        for shard in shards:
            self._claims.produce(
                topics.SEQUENCE, value, claim_key(self.id), shard, on_delivery=reports
            )
        if self._claims.flush(timeout_s):
            raise KafkaException(
                KafkaError(
                    KafkaError._TIMED_OUT, f"no answer within {timeout_s:g} s to who serves shards"
                )
            )
        if reports.errors:
            raise KafkaException(reports.errors[0])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What is produced within is committed at its end.

        After any error the session is over: what it knows may not be true.
        """
        self.producer.begin_transaction()
        yield
        self.producer.commit_transaction(KAFKA_S)

    def shut_out(self, ids: Iterable[str]) -> None:
        """Let none of these sessions write any more, and end what they left open.

        Raises KafkaException.
        """
        with self._fencing:
            for other in set(ids) - self._fenced:
                clients.fence(clients.transactional_producer(self._config, other), KAFKA_S)
                self._fenced.add(other)
                log.info(
                    "fenced %s, which served shards before",
                    other,
                    extra={"event": "sequencer.fenced"},
                )

    def close(self) -> None:
        """Discard what was not committed."""
        for producer in (self._claims, self.producer):
            producer.purge()
