"""Finds transactions of Kafka that do not end.

Readers of committed records see nothing of a partition behind the first one.

One is open for a moment at any time. One that hides the same offset for PATIENCE_S is found,
whichever program opened it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

PATIENCE_S: Final = 20.0
"""Seconds that a transaction is waited for: ours have 10 s (very large batches of the analysis
more), and Kafka checks every second, or every 10 s, for those whose time is over."""
LOOK_S: Final = 0.5
"""Seconds between two looks."""
SHOWN: Final = 3
"""Partitions named in one sentence; the rest is counted."""

Hidden: TypeAlias = Mapping[tuple[str, int], int]
"""Topic and partition → the first offset that is hidden."""


def hanging(
    client: AdminClient,
    counts: Mapping[str, int],
    *,
    answer_s: float,
    patience_s: float = PATIENCE_S,
) -> Hidden:
    """What is hidden now and still after `patience_s`.

    `counts`: topic → partitions. Raises KafkaException.
    """
    deadline_s = time.monotonic() + patience_s
    left = dict(hidden(client, counts, answer_s=answer_s))
    while left and time.monotonic() < deadline_s:
        time.sleep(LOOK_S)
        found = hidden(client, counts, answer_s=answer_s)
        # What moved on is another transaction: the first one ended.
        left = {where: first for where, first in left.items() if found.get(where) == first}
    return left


def hidden(client: AdminClient, counts: Mapping[str, int], *, answer_s: float) -> Hidden:
    """Partitions with records that readers of committed ones do not see at this moment.

    Partitions that cannot say, because they are being made, deleted or moved, are left out. Raises
    KafkaException.
    """
    from confluent_kafka import IsolationLevel, TopicPartition

    partitions = [
        TopicPartition(name, number) for name, count in counts.items() for number in range(count)
    ]
    if not partitions:
        return {}
    stable = _ends(client, partitions, IsolationLevel.READ_COMMITTED, answer_s)
    ends = _ends(client, partitions, IsolationLevel.READ_UNCOMMITTED, answer_s)
    return {where: first for where, first in stable.items() if first < ends.get(where, first)}


def _ends(
    client: AdminClient, partitions: Sequence[TopicPartition], isolation: object, answer_s: float
) -> Hidden:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import OffsetSpec

    unknown = (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError._NOENT)
    futures = client.list_offsets(
        dict.fromkeys(partitions, OffsetSpec.latest()),
        isolation_level=isolation,
        request_timeout=answer_s,
    )
    ends: dict[tuple[str, int], int] = {}
    for one, future in futures.items():
        try:
            ends[one.topic, one.partition] = int(future.result().offset)
        except KafkaException as error:
            # A broker's error concerns one partition, such as one without a leader. librdkafka's
            # own errors are negative: nobody answers.
            if error.args[0].code() < 0 and error.args[0].code() not in unknown:
                raise
    return ends


def describe(found: Hidden) -> str:
    """What is wrong and where to read on, for a user."""
    shown = ", ".join(
        f"{topic} partition {partition} from offset {first}"
        for (topic, partition), first in sorted(found.items())[:SHOWN]
    )
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return (
        f"readers see nothing of {shown}{more}: a transaction there is open for long. Either the "
        "analysis writes a very large batch, or Kafka forgot to end it, as 4.3.0 to 4.4.0 do "
        "after a crash: docs/production.md says what to do"
    )
