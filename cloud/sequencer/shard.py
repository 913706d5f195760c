"""A shard: the partitions of `ew.up` that move together, and the one Kafka transaction in which their batches are committed.

A process that dies leaves either all or nothing of a batch. The transactional id is the shard's, so whoever serves a shard shuts out
whoever served it before: an open transaction is ended at once, and a process that slept and wakes cannot write (KIP-98).

The positions stand on `ew.sequence` and not among the group's offsets: they belong to the state, they cost a batch no second coordinator,
and librdkafka 2.16 waits for ever in `send_offsets_to_transaction` when the group's coordinator was restarted. librdkafka speaks the first
version of the transaction protocol (no KIP-890), in which a commit that was delayed in the network may end the *next* transaction of the
same producer: after any time-out the producer is thrown away and a new one, with a new epoch, fences what is still on its way.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from confluent_kafka import Message, Producer

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.table_reader import TableReader
from edgewake.cloud.sequencer.arrival import Arrival
from edgewake.cloud.sequencer.bounds import Bounds
from edgewake.cloud.sequencer.output_writer import OutputWriter, StreamTopics
from edgewake.cloud.sequencer.partition import Partition, Step
from edgewake.cloud.sequencer.seen import Seen
from edgewake.cloud.sequencer.state_rows import block_key, decode_block_key
from edgewake.protocol import record, topics
from edgewake.protocol.record import PLACEMENT_HEADER, Placement
from edgewake.protocol.sequence import POSITION_KEY, Position, decode_positions, encode_positions

log = logging.getLogger("edgewake.sequencer")

KAFKA_S: Final = 10.0
"""Seconds for one step of a transaction; as long as the broker keeps it open."""


class Shard:
    """A shard that this process serves; `serve` makes one. One thread at a time."""

    def __init__(self, number: int, *, producer: Producer, writer: OutputWriter, streams: StreamTopics) -> None:
        self.number = number
        self.partitions: dict[int, Partition] = {}
        self._producer, self._writer, self._streams = producer, writer, streams
        self._seen = Seen()

    @classmethod
    def serve(
        cls, number: int, config: KafkaConfig, *, part: str, bounds: Bounds, streams: StreamTopics, is_wanted: Callable[[], bool]
    ) -> Shard:
        """Take the shard over: shut out who served it, then read what that one knew. Raises KafkaException or Unavailable."""
        producer = clients.transactional_producer(config, f"sequencer-{number}")
        clients.fence(producer, KAFKA_S)
        shard = cls(number, producer=producer, writer=OutputWriter(producer, part=part, shard=number, streams=streams), streams=streams)
        rows = _Rows()
        table = TableReader(config, f"{part}-state", {topics.SEQUENCE: rows.change}, partition=number, wait_ms=clients.ONCE_WAIT_MS)
        try:
            table.read_all(is_wanted=is_wanted)
        finally:
            table.close()
        for partition in range(number, topics.UP_PARTITIONS, topics.SHARDS):
            shard.partitions[partition] = Partition.restore(
                partition, bounds, position=rows.positions.get(partition, Position()), blocks=rows.blocks.get(partition, {})
            )
        return shard

    def replay(self, number: int, messages: Sequence[Message], *, now_s: float) -> None:
        """Repeat what these records of a partition changed; they were passed on before."""
        arrivals = [arrival for message in messages if (arrival := _arrival(message, [])) is not None]
        self.partitions[number].replay(arrivals, messages[-1].offset() + 1, now_s=now_s)

    @property
    def states(self) -> int:
        """Devices, epochs and streams that it knows."""
        return sum(len(partition.order.table) for partition in self.partitions.values())

    def close(self) -> None:
        """Discard what was not committed."""
        self._producer.purge()

    def is_due(self, now_s: float) -> bool:
        """Is there something to do without records?"""
        return self._seen.is_due(now_s) or any(partition.is_due(now_s) for partition in self.partitions.values())

    def commit(self, batches: Mapping[int, Sequence[Message]], *, now_s: float, now_ms: int) -> Counter[str]:
        """Put the records in order and commit what passes; what became of them (SequencerMetrics.outcomes).

        Raises KafkaException or Unavailable; then nothing in memory is true any more.
        """
        outcomes: Counter[str] = Counter()
        foreign: list[Message] = []
        steps: dict[int, Step] = {}
        for number, partition in self.partitions.items():
            batch = batches.get(number, ())
            if not batch and not partition.is_due(now_s):
                continue
            position = batch[-1].offset() + 1 if batch else max(partition.position.emitted_before, 0)
            arrivals = [arrival for message in batch if (arrival := _arrival(message, foreign)) is not None]
            step = partition.step(arrivals, position, now_s=now_s, now_ms=now_ms)
            if step is not None:
                steps[number] = step
            outcomes += partition.order.outcomes
            partition.order.outcomes.clear()
        outcomes["foreign"] += len(foreign)
        if steps or self._seen.is_due(now_s):
            self._write(steps, foreign, now_s, now_ms)
        return outcomes

    def _write(self, steps: Mapping[int, Step], foreign: Sequence[Message], now_s: float, now_ms: int) -> None:
        self._streams.ensure({output.stream for step in steps.values() for output in step.outputs})
        self._producer.begin_transaction()
        for number, step in steps.items():
            self._writer.write(number, step.outputs, now_ms)
            for block, row in step.rows:
                self._writer.write_row(block_key(number, block), row, now_ms)
            self._note_seen(step)
        for message in foreign:
            self._writer.bury(message, now_ms)
        for seen in self._seen.due(now_s):
            self._writer.write_seen(seen, now_ms)
        if steps:
            positions = {number: partition.position for number, partition in self.partitions.items()}
            self._writer.write_row(POSITION_KEY, encode_positions(positions), now_ms)
        self._producer.commit_transaction(KAFKA_S)

    def _note_seen(self, step: Step) -> None:
        for output in step.outputs:
            if isinstance(output, Arrival):
                self._seen.note(output.device, output.placement.stream, received_at=output.received_at, sent_at=output.sent_at)


class _Rows:
    """The latest rows of a shard."""

    def __init__(self) -> None:
        self.positions: dict[int, Position] = {}
        self.blocks: dict[int, dict[int, bytes]] = {}

    def change(self, key: str, value: bytes | None) -> None:
        if value is None:
            return
        if key == POSITION_KEY:
            self.positions = decode_positions(value)
        else:
            partition, block = decode_block_key(key)
            self.blocks.setdefault(partition, {})[block] = value


def _arrival(message: Message, foreign: list[Message]) -> Arrival | None:
    """A record of a bridge; what is none goes to `foreign`."""
    key, value = message.key(), message.value()
    for name, header in message.headers() or ():
        if name == PLACEMENT_HEADER and key is not None:
            try:
                placement = Placement.decode(header)
                sent_at, bridge_at = record.times_of(value)
                return Arrival(message.offset(), key.decode(), placement, len(value), message.timestamp()[1], sent_at, bridge_at, message)
            except (ValueError, TypeError):
                break
    foreign.append(message)
    return None
