"""The offsets of partitions: the first retained, the next to be written, that of a time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from edgewake.cloud.kafka.config import METADATA_TIMEOUT_S
from edgewake.cloud.kafka.metadata import warm_metadata
from edgewake.cloud.kafka.mortal import Admin
from edgewake.protocol.errors import Unavailable

GONE: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
"""What a consumer without a group says of a partition whose next record is not kept any more. It
says so once, and reads it no further."""
LEADER_S: Final = 0.05
"""Seconds between two questions for a new topic's leader."""
_NO_LEADER_YET: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
    }
)


def watermarks(
    consumer: Consumer,
    topic: str,
    partition: int,
    *,
    patience_s: float = METADATA_TIMEOUT_S,
    answer_s: float = METADATA_TIMEOUT_S,
) -> tuple[int, int]:
    """First offset kept and next one to be written.

    A topic just made has no leader yet: asks again for `patience_s`, and twice at least.

    `answer_s` for one answer. Raises Unavailable.
    """
    deadline = time.monotonic() + patience_s
    while True:
        is_last = time.monotonic() > deadline
        try:
            low, high = consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=answer_s
            )
        except KafkaException as error:
            if error.args[0].code() not in _NO_LEADER_YET or is_last:
                raise Unavailable(f"topic {topic}: {error.args[0].str()}") from error
            # That there was none librdkafka remembers for 15 minutes, unless it is asked about the
            # topic.
            warm_metadata(consumer, topic)
            time.sleep(LEADER_S)
        else:
            return int(low), int(high)


_OTHER_LEADER: Final = frozenset(
    {
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError._NOENT,
    }
)


def at_time(consumer: Consumer, topic: str, partition: int, time_ms: int, *, default: int) -> int:
    """The first offset whose record has the timestamp `time_ms` (ms since 1970 UTC) or a later one.

    `default` where there is none. Raises KafkaException.
    """
    asked = [TopicPartition(topic, partition, time_ms)]
    (found,) = consumer.offsets_for_times(asked, timeout=METADATA_TIMEOUT_S)
    if found.error is not None:
        raise KafkaException(found.error)
    return default if found.offset < 0 else int(found.offset)


def is_of_another_leader(error: KafkaException) -> bool:
    """Is the broker that was asked no longer the leader, or was it restarted?

    Then call `ask_for_leaders`, and ask again.

    librdkafka's AdminClient asks the leader that it once knew, for 15 minutes: nothing but a
    question about the topic tells it another. As long it remembers that a partition had no leader
    when it asked, for which it has the code "no entry".
    """
    return error.args[0].code() in _OTHER_LEADER


def ask_for_leaders(
    client: Admin, partitions: Iterable[TopicPartition], timeout_s: float
) -> list[Future[Any]]:
    """Have the client learn who leads now; it knows when these futures are done."""
    names = {partition.topic for partition in partitions}
    return list(
        client.describe_topics(TopicCollection(sorted(names)), request_timeout=timeout_s).values()
    )


def listed(
    client: Admin,
    partitions: Sequence[TopicPartition],
    spec: OffsetSpec,
    *,
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> dict[tuple[str, int], int]:
    """Topic and partition → the offset that `spec` means, -1 where no record has it.

    Raises KafkaException.
    """

    def ask() -> dict[tuple[str, int], int]:
        futures = client.list_offsets(
            dict.fromkeys(partitions, spec),
            isolation_level=isolation,
            request_timeout=METADATA_TIMEOUT_S,
        )
        return {
            (p.topic, p.partition): int(future.result().offset) for p, future in futures.items()
        }

    try:
        return ask()
    except KafkaException as error:
        if not is_of_another_leader(error):
            raise
    for future in ask_for_leaders(client, partitions, METADATA_TIMEOUT_S):
        future.result()
    return ask()


def ranges(client: Admin, counts: Mapping[str, int]) -> dict[str, dict[int, tuple[int, int]]]:
    """Topic → partition → first retained offset, and the one after the last committed record.

    It takes two questions, however many partitions there are.

    `counts`: how many partitions each topic has. Raises KafkaException.
    """
    partitions = [
        TopicPartition(name, number) for name, count in counts.items() for number in range(count)
    ]
    if not partitions:
        return {}
    first, last = (
        listed(client, partitions, spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
    )
    return {
        name: {p: (first[name, p], last[name, p]) for p in range(count)}
        for name, count in counts.items()
    }
