"""Carries out an erasure in Kafka: cuts or deletes topics, and removes rows of summaries.

The calls block, and repeating one changes nothing. Kafka cannot delete single records, only a topic
or all records before an offset. So a topic with records of others is cut after the last record to
erase, and the erasure reports how many records of others were deleted with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from edgewake.cloud.kafka import clients, metadata, topic_admin
from edgewake.cloud.kafka.config import METADATA_TIMEOUT_S, KafkaConfig
from edgewake.cloud.kafka.headers import headers_of
from edgewake.cloud.kafka.mortal import Admin
from edgewake.cloud.kafka.offsets import watermarks
from edgewake.protocol import topics
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.frames.device_partition import up_partition
from edgewake.protocol.frames.record import PLACEMENT_HEADER, Placement
from edgewake.protocol.frames.sequence import POSITION_KEY, Position, decode_positions
from edgewake.protocol.ops.erasure import NO_NAMES, TELLING, Cut, Erasure
from edgewake.protocol.sketches.sketch import DeviceSketch

BATCH: Final = 500
"""The most records fetched from Kafka's client at once."""
POLL_S: Final = 5.0
"""Seconds without a record after which Kafka counts as unavailable."""
FLUSH_S: Final = 30.0
POSITION_RECORDS: Final = 2_000
"""Records at the end of `ew.sequence` among which the sequencer's positions are; every transaction
writes them."""

Mine = Callable[[Message], bool]


class KafkaEraser:
    """Erases in Kafka. Not thread-safe."""

    def __init__(self, config: KafkaConfig, is_wanted: Callable[[], bool]) -> None:
        """When `is_wanted` returns false, a scan ends with Unavailable."""
        self._config, self._is_wanted = config, is_wanted
        self._admin: Admin = clients.admin(config, "erasures")
        settings: dict[str, Any] = {
            "enable.partition.eof": True,
            "queued.max.messages.kbytes": 8192,
        }
        self._consumer: Consumer = clients.consumer(config, "ops-erasures", **settings)
        self._producer: Producer = clients.producer(config, "ops-erasures")

    def close(self) -> None:
        """Closes the Kafka clients."""
        self._consumer.close()
        self._producer.close()

    def topic_ids(self, wanted: Iterable[str]) -> dict[str, str]:
        """Returns the ids of those topics that exist. Raises Unavailable."""
        there = metadata.partition_counts(self._admin)
        return metadata.topic_ids(self._admin, [name for name in wanted if name in there])

    def topics_of(self, names: Iterable[str]) -> list[str]:
        """Returns the result topics of queries with these names, of all their registrations."""
        wanted = set(names)
        found = []
        for topic in metadata.partition_counts(self._admin):
            parsed = topics.parse_query_topic(topic)
            if parsed is not None and parsed[0] in wanted:
                found.append(topic)
        return found

    def delete(self, wanted: Mapping[str, str]) -> None:
        """Deletes topics that still have these ids."""
        now = self.topic_ids(wanted)
        topic_admin.delete_topics(
            self._admin, [name for name, id_ in now.items() if wanted[name] == id_]
        )

    # --- where the last of it lies

    def cuts(self, erasure: Erasure) -> tuple[Cut, ...]:
        """Returns where topics that also hold records of others must be cut."""
        counts = metadata.partition_counts(self._admin)
        found = list(self._wanted(erasure, counts))
        ids = metadata.topic_ids(self._admin, {topic for topic, _, _ in found})
        made = (self._cut(topic, ids[topic], partition, mine) for topic, partition, mine in found)
        return tuple(cut for cut in made if cut is not None)

    def _wanted(
        self, erasure: Erasure, counts: Mapping[str, int]
    ) -> Iterator[tuple[str, int, Mine]]:
        name = erasure.name
        if erasure.what == "stream":
            for partition in range(counts.get(topics.UP, 0)):
                yield topics.UP, partition, lambda message: _stream_of(message) == name
            words = {name, *erasure.queries}
            for topic, partition in _partitions(TELLING, counts):
                yield topic, partition, lambda message: _tells_of(message, words)
            yield topics.DEAD, 0, lambda message: _letter_stream(message) == name
            return
        at, key = up_partition(name), name.encode()
        yield topics.UP, at, lambda message: message.key() == key
        for topic, count in counts.items():
            if topic in TELLING:
                yield from (
                    (topic, p, lambda message: _tells_of(message, {name})) for p in range(count)
                )
            elif topic.startswith(topics.STREAM_PREFIX):
                place = topics.stream_partition(at, count)
                yield topic, place, lambda message: message.key() == key
        yield topics.DEAD, 0, lambda message: message.key() == key

    def _cut(self, topic: str, topic_id: str, partition: int, is_mine: Mine) -> Cut | None:
        mine = others = through = passed = 0
        for message in self._read(topic, partition):
            if is_mine(message):
                mine, through = mine + 1, int(message.offset() or 0) + 1
                others, passed = others + passed, 0
            else:
                passed += 1
        if not mine:
            return None
        return Cut(topic=topic, topic_id=topic_id, partition=partition, through=through,
            records=mine, others=others)  # fmt: skip

    def _read(self, topic: str, partition: int) -> Iterator[Message]:
        """Yields all records that are committed now."""
        low, high = watermarks(self._consumer, topic, partition)
        if low == high:
            return
        self._consumer.assign([TopicPartition(topic, partition, low)])
        try:
            while self._is_wanted():
                first = self._consumer.poll(POLL_S)
                if first is None:
                    raise Unavailable(
                        f"{topic}, partition {partition}: Kafka returns no more records"
                    )
                for message in itertools.chain([first], self._consumer.consume(BATCH - 1, 0)):
                    error = message.error()
                    if error is not None and error.code() == KafkaError._PARTITION_EOF:
                        return
                    if error is not None:
                        raise KafkaException(error)
                    if (message.offset() or 0) >= high:
                        return
                    yield message
            raise Unavailable("this server ends")
        finally:
            self._consumer.unassign()

    # --- the sequencer, and the cut

    def unsequenced(self, cuts: Iterable[Cut], *, is_freed: bool) -> str:
        """Returns what the sequencer must do first, so that erased readings cannot come back.

        Empty: nothing. With `is_freed` it must also be past reading them again.
        """
        for cut in cuts:
            if cut.topic != topics.UP:
                continue
            position = self._position(cut.partition)
            reached = position.read_from if is_freed else position.emitted_before
            if reached < cut.through:
                return (
                    f"the sequencer is at {max(reached, 0)} of {cut.through} in partition "
                    f"{cut.partition} of {topics.UP}; it writes its state a minute after the last "
                    "record"
                )
        return ""

    def _position(self, partition: int) -> Position:
        shard = topics.shard_of(partition)
        low, high = watermarks(self._consumer, topics.SEQUENCE, shard)
        found = Position()
        start = max(low, high - POSITION_RECORDS)
        if start == high:
            return found
        self._consumer.assign([TopicPartition(topics.SEQUENCE, shard, start)])
        try:
            while True:
                message = self._consumer.poll(POLL_S)
                if message is None:
                    raise Unavailable(f"{topics.SEQUENCE}: Kafka does not answer")
                if message.error() is not None:
                    if message.error().code() == KafkaError._PARTITION_EOF:
                        return found
                    raise KafkaException(message.error())
                if message.key() == POSITION_KEY.encode() and message.value():
                    found = decode_positions(message.value()).get(partition, found)
        finally:
            self._consumer.unassign()

    def cut(self, cuts: Iterable[Cut]) -> None:
        """Deletes the records before the cuts, in topics that still have the same ids."""
        cuts = list(cuts)
        ids = self.topic_ids({cut.topic for cut in cuts})
        wanted = [
            TopicPartition(cut.topic, cut.partition, cut.through)
            for cut in cuts
            if ids.get(cut.topic) == cut.topic_id
        ]
        answers = self._admin.delete_records(wanted, request_timeout=METADATA_TIMEOUT_S)
        for place, future in answers.items():
            try:
                future.result()
            except KafkaException as error:
                if (
                    error.args[0].code() != KafkaError.OFFSET_OUT_OF_RANGE
                ):  # Retention deleted them already.
                    raise Unavailable(f"{place.topic}: {error.args[0].str()}") from error

    # --- summaries

    def remove_summaries(self, erasure: Erasure) -> tuple[int, bool]:
        """Removes rows on `ew.summaries.*`.

        Returns their number, and whether the analysis made any.
        """
        removed, is_of_analysis = 0, False
        for topic in topics.SUMMARIES:
            standing: dict[bytes, bool] = {}
            for message in self._read(topic, 0):
                key = message.key() or b""
                if is_summary_of(erasure, key):
                    standing[key] = message.value() is not None
            for key, is_there in standing.items():
                if is_there:
                    self._remove(topic, key)
                    removed += 1
                    is_of_analysis |= topic == topics.MINUTES and _is_of_analysis(key)
        if self._producer.flush(FLUSH_S):
            raise Unavailable("Kafka does not take what removes summaries")
        return removed, is_of_analysis

    def _remove(self, topic: str, key: bytes) -> None:
        while True:
            try:
                self._producer.produce(topic, None, key, 0)
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return


def _partitions(names: Iterable[str], counts: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    for name in names:
        yield from ((name, partition) for partition in range(counts.get(name, 0)))


def _stream_of(message: Message) -> str:
    header = headers_of(message).get(PLACEMENT_HEADER)
    try:
        return "" if header is None else Placement.decode(header).stream
    except ValueError:
        return ""


def _letter_stream(message: Message) -> str:
    topic = headers_of(message).get("topic", b"").decode("utf-8", "replace")
    head, _, stream = topic.rpartition("/")
    return stream if head.endswith("/up") else ""


def _tells_of(message: Message, words: set[str]) -> bool:
    """Returns whether a value of the record is one of these names."""
    value = message.value() or b""
    if (message.key() or b"").decode("utf-8", "replace") in words:
        return True
    if not any(word.encode() in value for word in words):
        return False
    try:
        fields = orjson.loads(value).get("fields", {})
        columns = [column for name, column in fields.items() if name not in NO_NAMES]
    except (ValueError, AttributeError):
        return False
    return any(one in words for column in columns for one in column if isinstance(one, str))


def is_summary_of(erasure: Erasure, key: bytes) -> bool:
    """Returns whether a row of `ew.summaries.*` with this key belongs to an erasure."""
    parts = key.decode("utf-8", "replace").split("|", 4)
    if len(parts) < 5 or not parts[3].isdigit() or int(parts[3]) >= erasure.asked_at:
        return False
    stream, _, devices, _, maker = parts
    if erasure.what == "stream":
        return stream == erasure.name
    made_by = maker.removeprefix("late:").partition("|")[0]
    return made_by == erasure.name or devices == DeviceSketch.set_of(erasure.name)


def _is_of_analysis(key: bytes) -> bool:
    maker = key.decode("utf-8", "replace").split("|", 4)[4]
    return not maker or (maker.startswith("late:") and "|" not in maker)
