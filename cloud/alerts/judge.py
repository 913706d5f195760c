"""The one operations server that judges: a thread that reads what rules look at, and writes alerts.

Kafka's group of operations servers says which server judges (kafka/leadership.py); the others stand
by, and one of them goes on when it is not heard of for SESSION_S. What guards the alerts is the
transactional id that all have: who begins fences the others, then reads the alerts as they stand.
Each turn is one transaction: rows of alerts and notes, the words of people that were heard, and the
places up to which streams are judged. A note is sent after a transaction has said that an attempt
begins, so a server that froze sends nothing when it wakes up as somebody else judges. One that dies
between the attempt and the word that it came through leaves it to the next, which sends the note
once more with the same id.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from edgewake.cloud import failpoint
from edgewake.cloud.alerts.book import Book
from edgewake.cloud.alerts.condition import Condition
from edgewake.cloud.alerts.life import Seen
from edgewake.cloud.alerts.telling import unit_of
from edgewake.cloud.kafka import clients, metadata, offsets, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.leadership import Leadership
from edgewake.cloud.kafka.table_reader import read_once
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import EdgewakeError, FilterError
from edgewake.protocol.frames import record as records
from edgewake.protocol.frames.stream import Stream
from edgewake.protocol.ops import result
from edgewake.protocol.ops.alert import Note, Rule, Word
from edgewake.protocol.ops.query import Progress

log = logging.getLogger("edgewake.alerts")

TRANSACTIONAL_ID: Final = "edgewake-ops-alerts"
TIMEOUT_MS: Final = 10_000
KAFKA_S: Final = 10.0
"""Seconds for one step of a transaction, and without a record while the alerts are read."""
SESSION_S: Final = 10.0
"""Seconds without a word after which another server judges."""
TURN_S: Final = 0.2
"""How long a turn waits for readings."""
BATCH_MAX: Final = 500
"""Records of one turn."""
PLACES_S: Final = 5.0
"""Between two writings of the places where nothing else is written."""
LOOK_EVERY_S: Final = 2.0
"""Between looks for topics that have come into being."""
RETRY_S: Final = 1.0
"""After trouble with Kafka."""


class Table(Protocol):
    """What people have written, as the operations server has it."""

    rules: Mapping[str, Rule]
    words: Mapping[str, Word]


@dataclass(frozen=True, slots=True)
class Levels:
    """For which keys of a rule its condition holds at one moment; of all others it does not."""

    rule: str
    at: int
    held: Mapping[str, Seen]


@dataclass(frozen=True, slots=True)
class Tried:
    """An attempt to send a note has ended."""

    note: str
    error: str | None
    is_final: bool = False


@dataclass
class Judge:
    """Judges rules. `run` belongs to a thread, the other methods to the event loop."""

    config: KafkaConfig
    table: Table
    topic_of: Callable[[str], str | None]
    """A query's topic now; None where it is not registered."""
    clock: Clock
    new_id: Callable[[], str]
    send: Callable[[Note], None]
    """Called in the judge's thread: begin an attempt; `news` takes what became of it."""
    is_loaded: Callable[[], bool]
    """Have the server's own tables been read?"""
    streams: Mapping[str, Stream] = field(default_factory=dict)
    """The streams of the catalogue, whose fields have units."""
    progress: Mapping[str, Progress] = field(default_factory=dict)
    """What is said of each query, whose columns have those of fields."""
    news: queue.SimpleQueue[Levels | Tried] = field(default_factory=queue.SimpleQueue)
    leads: bool = False
    """Does this server judge?"""
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Stand by and judge until stopped."""
        while not self._stop.is_set():
            try:
                topic_admin.ensure_topics(self.config, [topics.ALERTS, topics.ALERT_RULES])
                self._member()
            except (EdgewakeError, KafkaException) as error:
                log.warning("alerts wait: %s", error, extra={"event": "alerts.away"})
                self._stop.wait(RETRY_S)

    def stop(self) -> None:
        """End after the turn under way."""
        self._stop.set()

    def _member(self) -> None:
        leadership = Leadership(
            self.config,
            "",
            what="alerts",
            topic=topics.ALERTS,
            group=topics.ALERTS_GROUP,
            session_s=SESSION_S,
        )
        try:
            while not self._stop.is_set():
                leadership.poll(TURN_S)
                if self.is_loaded() and leadership.leads():
                    self._judge(leadership)
        finally:
            self.leads = False
            leadership.close()

    def _judge(self, leadership: Leadership) -> None:
        session = _Session(self)
        log.info("this server judges alerts", extra={"event": "alerts.leads"})
        try:
            self.leads = True
            while not self._stop.is_set() and leadership.leads():
                session.turn()
        finally:
            self.leads = False
            session.close()


class _Session:
    """One term of judging, from the moment this server takes over to the moment it stops."""

    def __init__(self, judge: Judge) -> None:
        self._judge, self._clock = judge, judge.clock
        self._producer = clients.transactional_producer(
            judge.config, TRANSACTIONAL_ID, timeout_ms=TIMEOUT_MS
        )
        clients.fence(self._producer, KAFKA_S)
        self._book = Book(judge.new_id, lambda rule: unit_of(rule, judge.streams, judge.progress))
        read_once(judge.config, "alerts-table", {topics.ALERTS: self._book.load}, idle_s=KAFKA_S)
        settings: dict[str, Any] = {"enable.partition.eof": True}
        self._consumer = clients.consumer(judge.config, "alerts-readings", **settings)
        self._asker = clients.consumer(judge.config, "alerts-asker")
        self._sources = _Sources(self._book, self._consumer, self._asker, self._clock)
        self._rules: Mapping[str, Rule] = {}
        self._conditions: dict[str, Condition] = {}
        self._heard: set[str] = set()
        """Words that were heard and may still stand in the server's table."""
        self._looked_s = self._placed_s = float("-inf")

    def turn(self) -> None:
        """One look at what is new, and one transaction about it. Raises KafkaException."""
        messages = self._sources.read()
        self._take_rules()  # after reading: a rule that was kept before a reading is known to it
        for message in messages:
            self._see(message)
        self._hear()
        is_behind = len(messages) >= BATCH_MAX or self._sources.is_behind()
        passed = judged_to(messages) if is_behind else self._clock.now_ms()
        if passed is not None:
            self._book.tick(passed, self._clock.now_ms())
        begun = self._book.begin(self._clock.now_ms())
        self._write()
        for note in begun:
            failpoint.reach("alerts.begun")
            self._judge.send(note)

    def _take_rules(self) -> None:
        now_s = self._clock.monotonic_s()
        rules = self._judge.table.rules
        if rules is self._rules and now_s - self._looked_s < LOOK_EVERY_S:
            return
        if rules is not self._rules:
            self._rules = rules
            self._book.set_rules(rules, self._clock.now_ms())
            self._conditions = dict(_conditions(rules))
        self._looked_s = now_s
        wanted: dict[str, list[Condition]] = {}
        for condition in self._conditions.values():
            topic = self._topic_of(condition.rule)
            if topic is not None:
                wanted.setdefault(topic, []).append(condition)
        self._sources.follow(wanted)

    def _topic_of(self, rule: Rule) -> str | None:
        if rule.stream is not None:
            return topics.stream_topic(rule.stream)
        return self._judge.topic_of(rule.query or "")

    def _see(self, message: Message) -> None:
        conditions = self._sources.conditions(str(message.topic()))
        at = int(message.timestamp()[1])
        for reading in readings_of(message):
            for condition in conditions:
                self._book.see(condition.rule, condition.seen(reading, at))

    def _hear(self) -> None:
        words = self._judge.table.words
        self._heard &= set(words)
        for word in sorted(words.values(), key=lambda one: (one.at, one.id)):
            if word.id not in self._heard:
                self._heard.add(word.id)
                self._book.hear(word)
                self._sources.said.append(word.id)
        while True:
            try:
                news = self._judge.news.get_nowait()
            except queue.Empty:
                return
            if isinstance(news, Tried):
                failpoint.reach("alerts.tried")
                now = self._clock.now_ms()
                self._book.end(news.note, now, news.error, is_final=news.is_final)
            elif (rule := self._rules.get(news.rule)) is not None:
                self._book.see_all(rule, news.held, news.at)

    def _write(self) -> None:
        changes = self._book.take_changes()
        said, self._sources.said = self._sources.said, []
        now_s = self._clock.monotonic_s()
        is_time = self._sources.moved and now_s - self._placed_s >= PLACES_S
        if not (changes or said or self._sources.is_new or is_time):
            return
        self._placed_s = now_s
        producer = self._producer
        producer.begin_transaction()
        for key, value in changes.items():
            producer.produce(topics.ALERTS, key=key, value=value, partition=0)
        for topic in self._sources.take_moved():
            place = self._book.places[topic].model_dump_json().encode()
            producer.produce(topics.ALERTS, key=f"place|{topic}", value=place, partition=0)
        for word in said:
            producer.produce(topics.ALERT_RULES, key=f"word|{word}", value=None, partition=0)
        with clients.fatal_errors():
            producer.commit_transaction(KAFKA_S)

    def close(self) -> None:
        """Leave. What is not committed is as if it had not been."""
        self._consumer.close()
        self._asker.close()


class _Sources:
    """The topics that rules look at, and how far each is read."""

    def __init__(self, book: Book, consumer: Consumer, asker: Consumer, clock: Clock) -> None:
        self._book, self._consumer, self._asker = book, consumer, asker
        self._clock = clock
        self._unread: set[tuple[str, int]] = set()
        """Topics and partitions with readings from before this server began to read them."""
        self._came_s = float("-inf")
        """When something came last."""
        self._wanted: Mapping[str, list[Condition]] = {}
        self._followed: set[str] = set()
        self._absent: set[str] = set()
        """Topics that were looked for and not there: when they come, their beginning counts."""
        self.moved: set[str] = set()
        self.is_new = False
        """Is there a place that was never written?"""
        self.said: list[str] = []
        """Words that were heard."""

    def conditions(self, topic: str) -> list[Condition]:
        """The conditions of the rules on a topic."""
        return self._wanted.get(topic, [])

    def is_behind(self) -> bool:
        """Is there still to be judged what came while nobody did?

        Not where Kafka has given nothing for KAFKA_S: a partition without a leader may never.
        """
        return bool(self._unread) and self._clock.monotonic_s() - self._came_s < KAFKA_S

    def follow(self, wanted: Mapping[str, list[Condition]]) -> None:
        """Read these topics from now on: from where it stood, else from the oldest of their rules.

        A rule is judged from the moment at which it was kept, however late a judge learns of it.
        """
        self._wanted = wanted
        for topic in self._followed - set(wanted):
            count = len(self._book.places[topic].offsets)
            self._consumer.incremental_unassign([TopicPartition(topic, p) for p in range(count)])
            self._followed.discard(topic)
            self._unread = {place for place in self._unread if place[0] != topic}
        for topic in set(self._book.places) - set(wanted):
            self._book.forget_place(topic)
            self.moved.discard(topic)
        self._absent &= set(wanted)
        for topic in set(wanted) - self._followed:
            self._begin(topic)

    def _begin(self, topic: str) -> None:
        count = metadata.partition_count(self._asker, topic)
        if count == 0:
            self._absent.add(topic)
            return
        known = self._book.places.get(topic)
        since = min(condition.rule.changed_at for condition in self._wanted[topic])
        places: dict[int, int] = {}
        for partition in range(count):
            low, high = offsets.watermarks(self._asker, topic, partition)
            if known is not None:
                place = known.offsets.get(partition, low)
            elif topic in self._absent:
                place = low
            else:
                place = offsets.at_time(self._asker, topic, partition, since, default=high)
            places[partition] = min(max(place, low), high)
            if places[partition] < high:
                self._unread.add((topic, partition))
                self._came_s = self._clock.monotonic_s()
        self._book.set_place(topic, places)
        self.moved.add(topic)
        self.is_new = self.is_new or known is None
        self._absent.discard(topic)
        self._followed.add(topic)
        self._consumer.incremental_assign(
            [TopicPartition(topic, partition, place) for partition, place in places.items()]
        )

    def read(self) -> list[Message]:
        """What is new; waits TURN_S for the first one. Raises KafkaException."""
        first = self._consumer.poll(TURN_S)
        found = [] if first is None else [first, *self._consumer.consume(BATCH_MAX - 1, 0)]
        good = []
        for message in found:
            error = message.error()
            topic = str(message.topic())
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                self._unread.discard((topic, int(message.partition() or 0)))
                continue
            if error is not None:
                raise KafkaException(error)
            if topic not in self._followed:
                continue
            self._book.places[topic].offsets[int(message.partition() or 0)] = (
                int(message.offset() or 0) + 1
            )
            self.moved.add(topic)
            good.append(message)
        if good:
            self._came_s = self._clock.monotonic_s()
        return good

    def take_moved(self) -> set[str]:
        """Topics whose places are to be written."""
        moved, self.moved, self.is_new = self.moved, set(), False
        return moved


def _conditions(rules: Mapping[str, Rule]) -> list[tuple[str, Condition]]:
    found = []
    for name, rule in rules.items():
        if rule.when is None or rule.silent_s is not None:
            continue
        try:
            found.append((name, Condition.of(rule)))
        except FilterError as error:  # checked when it was made, by a version that knew more
            log.error("rule %s: %s", name, error, extra={"event": "alerts.rule"})
    return found


def judged_to(messages: list[Message]) -> int | None:
    """Up to when all is judged that these were read of; None where they are none.

    A partition that is read from further back than another decides.
    """
    newest = {(m.topic(), m.partition()): int(m.timestamp()[1]) for m in messages}
    return min(newest.values(), default=None)


def readings_of(message: Message) -> list[Mapping[str, Any]]:
    """What a record holds; nothing where it is a watermark, a gap or somebody else's."""
    value = message.value()
    if value is None or result.is_watermark(message.key()):
        return []
    try:
        if str(message.topic()).startswith(topics.STREAM_PREFIX):
            return list(records.readings(records.decode(value)))
        row = orjson.loads(value)
        return [row] if isinstance(row, dict) else []
    except (AttributeError, LookupError, TypeError, ValueError):
        return []
