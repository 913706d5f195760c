"""Reads older records from Kafka in blocks that all readers share, in a bounded number of threads.

A block begins at the position asked for and ends at a border that depends on the records only (or
at BLOCK_RECORDS, BLOCK_BYTES), so readers that began at different places soon ask for the same
blocks. The latest blocks are kept within `kept_bytes`; a block that is being read is waited for and
not read twice. Nothing is kept for a reader between two blocks, but each thread stays where its
last block ended for STAYS_S: who reads on asks for the next one, and Kafka has sent it already.

Only one thread reads a partition, and after a failure not before FAILURE_PAUSE_S, in which it is
`Unavailable` at once: one that cannot be reached occupies one thread for at most SILENCE_S and
leaves the others to the rest.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from confluent_kafka import Consumer, KafkaException, TopicPartition

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.metadata import warm_metadata
from edgewake.cloud.log.decode import Record
from edgewake.cloud.log.kafka_reader import RangeLost, ReachedEnd, found_in
from edgewake.cloud.log.tail import RECORD_OVERHEAD_BYTES
from edgewake.protocol.errors import EdgewakeError, LocalError, Unavailable

BLOCK_RECORDS: Final = 512
"""A block ends before an offset that is a multiple of it."""
BLOCK_BYTES: Final = 256 * 1024
"""Bytes after which a block ends; the last record may pass it."""
SILENCE_S: Final = 5.0
"""A partition from which nothing comes for so long is unavailable."""
FAILURE_PAUSE_S: Final = 5.0
CLOSE_S: Final = 5.0
STAYS_S: Final = 1.0
"""Seconds that a thread stays where its last block ended. What Kafka has sent of what follows lies
in its client meanwhile, `queued.max.messages.kbytes` at most."""

_CONSUMER: Final[dict[str, Any]] = {
    "enable.partition.eof": True,
    "queued.max.messages.kbytes": 1024,
    "fetch.message.max.bytes": 512 * 1024,
    "fetch.error.backoff.ms": 20,
}


class Gone(Exception):
    """The range is not kept any more; its readers get a gap."""


@dataclass(frozen=True, slots=True)
class Block:
    """Records from the offset asked for up to `end` (exclusive).

    It is empty only where nothing is committed yet.
    """

    records: Sequence[Record]
    end: int
    bytes: int


BlockKey: TypeAlias = tuple[str, str, int, int]
"""Topic, its id in Kafka, partition, first offset."""
Partition: TypeAlias = tuple[str, int]
Answer: TypeAlias = Block | Gone | Unavailable
OnAnswer: TypeAlias = Callable[[Answer], None]


class TurnsOfPartitions:
    """Which block is read next: pure.

    Partitions take turns; only one thread reads each.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[Partition, deque[BlockKey]] = OrderedDict()
        self._busy: set[Partition] = set()
        self._failed_until: dict[Partition, float] = {}

    def add(self, key: BlockKey) -> None:
        """A block is wanted."""
        self._waiting.setdefault((key[0], key[2]), deque()).append(key)

    def next(
        self, own: BlockKey | None = None, of_others: Collection[BlockKey] = ()
    ) -> BlockKey | None:
        """The next block to read; None where there is none, or another should read it.

        `own`: what follows where the thread stands comes first; what follows where others stand,
        who are idle, is theirs.
        """
        free = {one: keys for one, keys in self._waiting.items() if one not in self._busy}
        for partition, keys in free.items():
            if keys[0] == own:
                return self._taken(partition, keys)
        for partition, keys in free.items():
            if keys[0] not in of_others:
                return self._taken(partition, keys)
        return None

    def _taken(self, partition: Partition, keys: deque[BlockKey]) -> BlockKey:
        key = keys.popleft()
        if keys:
            self._waiting.move_to_end(partition)
        else:
            del self._waiting[partition]
        self._busy.add(partition)
        return key

    def done(self, key: BlockKey, *, failed_at: float | None) -> list[BlockKey]:
        """A block was read, or not; the blocks that fail with it."""
        partition = (key[0], key[2])
        self._busy.discard(partition)
        if failed_at is None:
            self._failed_until.pop(partition, None)
            return []
        self._failed_until[partition] = failed_at + FAILURE_PAUSE_S
        return list(self._waiting.pop(partition, ()))

    def is_failing(self, key: BlockKey, now: float) -> bool:
        """Did its partition fail a moment ago?"""
        return now < self._failed_until.get((key[0], key[2]), 0.0)


@dataclass(slots=True)
class _Reading:
    asked_by: list[OnAnswer] = field(default_factory=list)


class Replay:
    """The threads and the blocks that they share.

    Everything but the threads runs in the event loop.
    """

    def __init__(
        self,
        config: KafkaConfig,
        client_id: str,
        *,
        readers: int,
        kept_bytes: int,
        failed: Callable[[BaseException], None],
    ) -> None:
        """`failed` is called in a thread that dies of an error."""
        self._failed = failed
        self._config = config
        self._client_id = client_id
        self._readers = readers
        self._kept: OrderedDict[BlockKey, Block] = OrderedDict()
        self._kept_bytes = 0
        self._kept_bytes_max = kept_bytes
        self._reading: dict[BlockKey, _Reading] = {}
        self._turns = TurnsOfPartitions()
        self._may_go = threading.Condition()
        self._is_closing = False
        self._standing: list[BlockKey] = []
        """What follows where idle threads stand."""
        self._threads: list[threading.Thread] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self.blocks_read = 0

    def at_hand(self, key: BlockKey) -> Block | None:
        """The block, if it was read lately."""
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
        return kept

    def ask(self, key: BlockKey, on_answer: OnAnswer) -> None:
        """Have a block read; `on_answer` is called later, in the event loop, once."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        reading = self._reading.get(key)
        if reading is not None:
            reading.asked_by.append(on_answer)
            return
        with self._may_go:
            if self._turns.is_failing(key, time.monotonic()):
                self._loop.call_soon(
                    on_answer,
                    Unavailable(
                        f"topic {key[0]}, partition {key[2]}: cannot be read at the moment"
                    ),
                )
                return
            self._reading[key] = _Reading([on_answer])
            self._turns.add(key)
            self._may_go.notify_all()
        if len(self._threads) < self._readers:
            thread = threading.Thread(
                target=self._run, name=f"replay-{len(self._threads)}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """End the threads, those that wait for Kafka too."""
        with self._may_go:
            self._is_closing = True
            self._may_go.notify_all()
        for thread in self._threads:
            thread.join(CLOSE_S)

    def _run(self) -> None:
        try:
            self._read_in_turn()
        except (
            BaseException
        ) as error:  # the loop must learn of it, whatever it is: readers would wait for ever
            self._failed(error)

    def _read_in_turn(self) -> None:
        consumer = self._new_consumer()
        known: set[str] = set()
        stands: BlockKey | None = None
        while True:
            key = self._next(stands)
            if key is None and stands is not None:  # nobody reads on there
                consumer.unassign()
                stands = None
                continue
            if key is None:
                break
            answer, stands = self._answer(consumer, known, key, stands)
            # Perhaps it never will read anything again (cloud/kafka/mortal.py)
            if isinstance(answer, Unavailable):
                consumer.close()
                consumer, known = self._new_consumer(), set()
            with self._may_go:
                failed = self._turns.done(
                    key, failed_at=time.monotonic() if isinstance(answer, Unavailable) else None
                )
                self._may_go.notify_all()
            for each in (key, *failed):
                self._tell(each, answer)
        consumer.close()

    def _new_consumer(self) -> Consumer:
        made: Consumer = clients.consumer(self._config, f"{self._client_id}-replay", **_CONSUMER)
        return made

    def _next(self, stands: BlockKey | None) -> BlockKey | None:
        """What to read, for a thread that stands there; None at the end, or after STAYS_S."""
        with self._may_go:
            if stands is None:
                return self._awaited(None, None)
            self._standing.append(stands)
            try:
                return self._awaited(stands, time.monotonic() + STAYS_S)
            finally:
                self._standing.remove(stands)
                self._may_go.notify_all()  # what was left to it may be another's now

    def _awaited(self, stands: BlockKey | None, until_s: float | None) -> BlockKey | None:
        while not self._is_closing:
            key = self._turns.next(stands, self._standing)
            left_s = None if until_s is None else until_s - time.monotonic()
            if key is not None or (left_s is not None and left_s <= 0):
                return key
            self._may_go.wait(left_s)
        return None

    def _answer(
        self, consumer: Consumer, known: set[str], key: BlockKey, stands: BlockKey | None
    ) -> tuple[Answer, BlockKey | None]:
        """What was read, and where the consumer stands now."""
        try:
            return self._read(consumer, known, key, stands)
        except (Gone, Unavailable) as error:
            answer: Answer = error
        except KafkaException as error:
            answer = Unavailable(f"topic {key[0]}: {error.args[0].str()}")
        except EdgewakeError as error:
            answer = Unavailable(str(error))
        consumer.unassign()
        return answer, None

    def _read(
        self, consumer: Consumer, known: set[str], key: BlockKey, stands: BlockKey | None
    ) -> tuple[Answer, BlockKey | None]:
        topic, _, partition, offset = key
        if topic not in known:
            warm_metadata(consumer, topic)
            known.add(topic)
        if key != stands:
            consumer.assign([TopicPartition(topic, partition, offset)])
        found, is_at_end = _read_block(consumer, key, self._has_to_stop)
        if is_at_end:  # which is told once to who stays there
            consumer.unassign()
            return found, None
        return found, (*key[:3], found.end)

    def _has_to_stop(self) -> bool:
        return self._is_closing

    def _tell(self, key: BlockKey, answer: Answer) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._on_answer, key, answer)
        except RuntimeError as error:  # the loop is closed: nobody waits any more
            if not self._is_closing:
                raise LocalError(
                    "the event loop ended before the readers of older records"
                ) from error

    def _on_answer(self, key: BlockKey, answer: Answer) -> None:
        reading = self._reading.pop(key)
        if isinstance(answer, Block):
            self.blocks_read += 1
            if answer.end > key[-1]:
                self._cache_block(key, answer)
        for on_answer in reading.asked_by:
            on_answer(answer)

    def _cache_block(self, key: BlockKey, block: Block) -> None:
        self._kept[key] = block
        self._kept_bytes += block.bytes
        while self._kept_bytes > self._kept_bytes_max:
            self._kept_bytes -= self._kept.popitem(last=False)[1].bytes


def _is_block_border(record: Record) -> bool:
    """Like reader.is_border, for blocks: every BLOCK_BYTES / 2 on average."""
    return (record.offset * 2_654_435_761) & 0xFFFF_FFFF < len(record.value) * (
        2**33 // BLOCK_BYTES
    )


def _read_block(
    consumer: Consumer, key: BlockKey, has_to_stop: Callable[[], bool]
) -> tuple[Block, bool]:
    """A block, and whether it ends at the partition's end. Raises Gone and Unavailable."""
    topic, _, partition, end = key
    until = (end // BLOCK_RECORDS + 1) * BLOCK_RECORDS
    records: list[Record] = []
    size = 0
    heard_at = time.monotonic()
    while end < until and size < BLOCK_BYTES:
        if has_to_stop() or time.monotonic() - heard_at > SILENCE_S:
            raise Unavailable(
                f"topic {topic}, partition {partition}: nothing came for {SILENCE_S:.0f} s"
            )
        message = consumer.poll(0.2)
        found = None if message is None else found_in(message)
        if found is None or found[:2] != (topic, partition):
            continue
        heard_at = time.monotonic()
        match found[2]:
            case RangeLost():
                raise Gone
            case ReachedEnd(offset):
                return Block(records, max(end, offset), size), True
            case record:
                records.append(record)
                size += len(record.value) + RECORD_OVERHEAD_BYTES
                end = record.offset + 1
                if _is_block_border(record):
                    break
    return Block(records, end, size), False
