"""A Kafka that its own controller shut out for seconds: clients that librdkafka leaves without a
broker are made anew.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from edgewake.cloud.alerts.judge import Judge, Tried
from edgewake.cloud.kafka import clients, metadata, offsets, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.ops.alert import Note
from tests.alerts.build import rule
from tests.bridge.running import read
from tests.feeds import Feed
from tests.gate import Gate
from tests.services import run_kafka_that_can_be_shut_out, wait_until

pytestmark = pytest.mark.services


FLEET = 8
"""Clients of each kind. Of those that are made once, all that ask for offsets die the first time
that Kafka is shut out; of those that list topics none or a third, as chance will have it."""
EVERY_S = 0.2
QUESTION_S = 4.0
TIMES = 3
ACLS = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found=true",
)
FRESH_S = 2.0
"""A follower has caught up when the newest record that it was given is not older: producers write
all the time."""
BACK_S = 30.0
"""A client is given up after 5 s, and the question under way ends 4 s later; the rest is for a busy
machine."""


@dataclass
class Asking:
    """Asks again and again in a thread; `answered_s` is when it was last answered."""

    name: str
    question: Callable[[], object]
    answered_s: float = 0.0
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Until it is stopped."""
        while not self.stop.wait(EVERY_S):
            with suppress(KafkaException, Unavailable):
                self.question()
                self.answered_s = time.monotonic()


@contextmanager
def asking(all_of_them: list[Asking]) -> Iterator[None]:
    """All ask at the same time."""
    threads = [threading.Thread(target=one.run, daemon=True) for one in all_of_them]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for one in all_of_them:
            one.stop.set()
        for thread in threads:
            thread.join(2 * QUESTION_S)


def bare(config: KafkaConfig) -> AdminClient:
    """What `clients.admin` keeps: the client as librdkafka has it."""
    return AdminClient(
        {"bootstrap.servers": config.bootstrap, "log_level": 0, "error_cb": lambda _: None}
    )


def shut_out(gate: Gate, config: KafkaConfig) -> None:
    """Shut the broker out, and prove it: who asks then is told of no broker."""
    gate.shut()
    wait_until(lambda: not brokers_told(config), "the broker is shut out")
    time.sleep(2 * EVERY_S)  # everybody is told once
    gate.open()
    wait_until(lambda: brokers_told(config), "the broker is let in again")


def brokers_told(config: KafkaConfig) -> object:
    """The brokers that a new client is told of."""
    with suppress(KafkaException):
        return bare(config).list_topics(timeout=QUESTION_S).brokers
    return {}


def answers(name: str, made: Callable[[], Callable[[], object]]) -> list[Asking]:
    """A fleet; each asks a client of its own, which `made` makes with the question."""
    return [Asking(f"{name} {n}", made()) for n in range(FLEET)]


@pytest.mark.long
def test_who_asks_for_topics_or_offsets_is_answered_after_kafka_was_shut_out(
    tmp_path: Path,
) -> None:
    with run_kafka_that_can_be_shut_out(tmp_path, *ACLS) as (kafka, gate):
        config = KafkaConfig(bootstrap=kafka.bootstrap)
        topic_admin.ensure_topics(config, [topics.DEVICES])
        place = TopicPartition(topics.DEVICES, 0)

        def lists_bare() -> Callable[[], object]:
            client = bare(config)
            return lambda: client.list_topics(timeout=QUESTION_S)

        def lists() -> Callable[[], object]:
            client = clients.admin(config)
            return lambda: client.list_topics(timeout=QUESTION_S)

        def ends_bare() -> Callable[[], object]:
            client = bare(config)

            def ask() -> None:
                for future in client.list_offsets(
                    {place: OffsetSpec.latest()}, request_timeout=QUESTION_S
                ).values():
                    future.result()

            return ask

        def ends() -> Callable[[], object]:
            client = clients.admin(config)
            return lambda: offsets.listed(client, [place], OffsetSpec.latest())

        def describes() -> Callable[[], object]:
            client = clients.admin(config)
            return lambda: metadata.topic_ids(client, [topics.DEVICES])

        def watermarks() -> Callable[[], object]:
            asker = clients.asked_consumer(config, "asker")

            def ask() -> None:
                with asker.asked() as consumer:
                    offsets.watermarks(consumer, topics.DEVICES, 0)

            return ask

        controls = [*answers("list, as it is", lists_bare), *answers("ends, as it is", ends_bare)]
        ours = [
            *answers("list", lists),
            *answers("ends", ends),
            *answers("describe", describes),
            *answers("watermarks", watermarks),
        ]
        with asking([*controls, *ours]), judging(config) as judged:
            judged.sees_another("before")
            wait_until(
                lambda: all(one.answered_s for one in (*controls, *ours)), "all are answered"
            )
            for _ in range(TIMES):
                shut_out(gate, config)
                let_in_s = time.monotonic()
                wait_until(
                    lambda at_s=let_in_s: all(one.answered_s > at_s for one in ours),
                    "ours are answered again",
                )
                took_s = time.monotonic() - let_in_s
                assert took_s < BACK_S
                judged.sees_another("after Kafka was shut out")
            stuck = {one.name for one in controls if one.answered_s < let_in_s}
            judged.loses_its_right()
            judged.sees_another("after it might not read for a while")
        assert {f"ends, as it is {n}" for n in range(FLEET)} <= stuck, "the fault did not happen"


@pytest.mark.long
def test_who_writes_or_follows_goes_on_after_kafka_was_shut_out(tmp_path: Path) -> None:
    """Producers that write all the time and producers that are idle meanwhile; consumers that are
    assigned by hand, and members of groups. None of them is ever replaced.
    """
    with run_kafka_that_can_be_shut_out(tmp_path) as (kafka, gate):
        config = KafkaConfig(bootstrap=kafka.bootstrap)
        topic = topics.stream_topic("shut_out")
        topic_admin.ensure_topics(config, [topic])

        def writes() -> Callable[[], object]:
            client = clients.producer(config, "writer")
            return lambda: written(client, topic)

        def follows() -> Callable[[], object]:
            client = clients.consumer(config, "follower")
            partitions = range(config.partitions)
            client.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
            return lambda: followed(client)

        groups = itertools.count()

        def joins() -> Callable[[], object]:
            client = clients.consumer(config, "member", group=f"shut-out-{next(groups)}")
            client.subscribe([topic])
            return lambda: followed(client)

        idle = [clients.producer(config, "idle") for _ in range(FLEET)]
        for client in idle:
            written(client, topic)
        busy = [
            *answers("writer", writes),
            *answers("follower", follows),
            *answers("member", joins),
        ]

        def all_since(at_s: float) -> bool:
            return all(one.answered_s > at_s for one in busy)

        with asking(busy):
            wait_until(partial(all_since, 0.0), "all go on")
            for _ in range(TIMES):
                shut_out(gate, config)
                let_in_s = time.monotonic()
                for client in idle:
                    written(client, topic, within_s=BACK_S)
                wait_until(partial(all_since, let_in_s), "all go on again")
                assert time.monotonic() - let_in_s < BACK_S


def written(client: Producer, topic: str, *, within_s: float = QUESTION_S) -> None:
    """Write a record, until Kafka has it. Raises Unavailable."""
    client.produce(topic, b"{}")
    if client.flush(within_s):
        raise Unavailable("not written yet")


def followed(client: Consumer) -> None:
    """Take what there is, up to a record of now. Raises Unavailable, KafkaException."""
    newest_ms = 0
    deadline = time.monotonic() + QUESTION_S
    while newest_ms < 1000 * (time.time() - FRESH_S):
        if time.monotonic() > deadline:
            raise Unavailable("nothing new")
        for one in client.consume(1000, EVERY_S):
            if one.error() is not None:
                raise KafkaException(one.error())
            newest_ms = max(newest_ms, one.timestamp()[1])


@dataclass
class Judged:
    """A judge of alerts with one rule, in a thread, and the stream that it looks at."""

    judge: Judge
    config: KafkaConfig
    stream: str
    admin: AdminClient
    log: list[str] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    devices: int = 0

    def sees_another(self, when: str) -> None:
        """A device that was not heard of before breaks the rule, and its destination is told."""
        self.devices += 1
        device = f"dev-{self.devices}"
        # Kafka may have ended the transaction of a producer that it shut out: a new one.
        feed = Feed(self.config, name=self.stream)
        feed.send(device, fields={"n": [50.0]})
        feed.close()
        wait_until(
            lambda: any(device in one.firing for one in self.notes),
            f"a note {when}",
        )

    def loses_its_right(self) -> None:
        """Forbid it to read the stream until it has stumbled over that; then allow it again."""
        words = ResourceType.TOPIC, topics.stream_topic(self.stream), ResourcePatternType.LITERAL
        whose = "User:ANONYMOUS", "*", AclOperation.READ, AclPermissionType.DENY
        seen = len(self.log)
        for made in self.admin.create_acls([AclBinding(*words, *whose)]).values():
            made.result(QUESTION_S)
        wait_until(lambda: "alerts.away" in self.log[seen:], "it is missed")
        for deleted in self.admin.delete_acls([AclBindingFilter(*words, *whose)]).values():
            deleted.result(QUESTION_S)


@contextmanager
def judging(config: KafkaConfig) -> Iterator[Judged]:
    feed, ids = Feed(config), itertools.count()
    feed.send()
    feed.close()
    table = SimpleNamespace(
        rules={"hot": rule(stream=feed.name, when="n > 30", tell=("me",), group_s=0)}, words={}
    )

    def send(note: Note) -> None:
        made.notes.append(note)
        judge.news.put(Tried(note.id, None))

    judge = Judge(
        config, table, lambda _: None, SystemClock(), lambda: f"id{next(ids)}", send, lambda: True
    )
    made = Judged(judge, config, feed.name, bare(config))
    thread = threading.Thread(target=judge.run, daemon=True)
    logger, heard = logging.getLogger("edgewake.alerts"), Heard(made.log)
    logger.addHandler(heard)
    thread.start()
    try:
        wait_until(lambda: judge.leads, "it judges")
        # A rule looks at what comes after it was made.
        wait_until(lambda: judged_from(config, feed), "it has a place in the stream")
        yield made
    finally:
        judge.stop()
        thread.join(BACK_S)
        logger.removeHandler(heard)


def judged_from(config: KafkaConfig, feed: Feed) -> bool:
    """Has the judge written from where on it looks at the stream?"""
    return any(one.key() == f"place|{feed.topic}".encode() for one in read(config, topics.ALERTS))


class Heard(logging.Handler):
    """The events of a log."""

    def __init__(self, events: list[str]) -> None:
        super().__init__(logging.INFO)
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        self._events.append(getattr(record, "event", ""))
