"""Reads again what a shard's rows lack: records of `ew.up` emitted after the rows were written.

It runs beside the loop and with a consumer of its own, so the shards that are served do not wait
for it, and it does not wait for its turn among their records. Nothing is written meanwhile: a
process that dies in a replay changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from confluent_kafka import Message, TopicPartition

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.sequencer.membership import check_event
from edgewake.cloud.sequencer.shard import Shard
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable

BATCH: Final = 1000
"""Records that are read at once at most."""
POLL_S: Final = 0.1
IDLE_S: Final = 30.0
"""Seconds without a record after which the replay fails: it ends by progress, however much there
is."""


def replay(
    shard: Shard, config: KafkaConfig, *, part: str, clock: Clock, is_wanted: Callable[[], bool]
) -> int:
    """Bring the shard to where it was; the number of records read.

    Raises KafkaException, or Unavailable when nothing comes or nobody wants it any more.
    """
    ends = {
        number: one.position.emitted_before
        for number, one in shard.partitions.items()
        if one.order.is_replaying
    }
    if not ends:
        return 0
    consumer = clients.consumer(config, f"{part}-replay")
    try:
        consumer.assign(
            [
                TopicPartition(topics.UP, number, shard.partitions[number].position.read_from)
                for number in ends
            ]
        )
        count, came_s = 0, clock.monotonic_s()
        while ends:
            first = consumer.poll(POLL_S)
            now_s = clock.monotonic_s()
            if not is_wanted():
                raise Unavailable(f"shard {shard.number} is not wanted any more")
            if first is not None:
                came_s = now_s
                count += _accept(shard, [first, *consumer.consume(BATCH - 1, 0)], ends, now_s)
                through = [
                    number for number in ends if not shard.partitions[number].order.is_replaying
                ]
                consumer.incremental_unassign(
                    [TopicPartition(topics.UP, number) for number in through]
                )
                for number in through:
                    del ends[number]
            elif now_s - came_s > IDLE_S:
                raise Unavailable(
                    f"topic {topics.UP}: no record for {IDLE_S:.0f} s, though partitions "
                    f"{sorted(ends)} have more"
                )
        return count
    finally:
        consumer.close()


def _accept(
    shard: Shard, messages: Sequence[Message], ends: Mapping[int, int], now_s: float
) -> int:
    """Repeat what these changed; how many they were."""
    batches: dict[int, list[Message]] = defaultdict(list)
    for message in messages:
        number = message.partition()
        if message.error() is not None:
            check_event(message)
        elif number in ends and message.offset() < ends[number]:
            batches[number].append(message)
    for number, batch in batches.items():
        shard.replay(number, batch, now_s=now_s)
    return sum(map(len, batches.values()))
