"""A Kafka that its own controller shut out for seconds: clients that librdkafka leaves without a broker are made anew."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from edgewake.cloud.kafka import clients, offsets, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from tests.gate import Gate
from tests.services import run_kafka_that_can_be_shut_out, wait_until

FLEET = 8
"""Clients of each kind: of those that are made once, a third dies at each time that Kafka is shut out."""
EVERY_S = 0.2
QUESTION_S = 4.0


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
            with suppress(KafkaException):
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


def unmade(config: KafkaConfig) -> AdminClient:
    """What `clients.admin` keeps: the client as librdkafka has it."""
    return AdminClient({"bootstrap.servers": config.bootstrap, "log_level": 0, "error_cb": lambda _: None})


def shut_out(gate: Gate, config: KafkaConfig) -> None:
    """Shut the broker out, and prove it: who asks then is told of no broker."""
    gate.shut()
    wait_until(lambda: not clients_brokers(config), "the broker is shut out")
    time.sleep(2 * EVERY_S)  # everybody is told once
    gate.open()
    wait_until(lambda: clients_brokers(config), "the broker is let in again")


def clients_brokers(config: KafkaConfig) -> object:
    """The brokers that a new client is told of."""
    with suppress(KafkaException):
        return unmade(config).list_topics(timeout=QUESTION_S).brokers
    return {}


def test_who_asks_for_topics_or_offsets_is_answered_after_kafka_was_shut_out(tmp_path: Path) -> None:
    with run_kafka_that_can_be_shut_out(tmp_path) as (kafka, gate):
        config = KafkaConfig(bootstrap=kafka.bootstrap)
        topic_admin.ensure_topics(config, [topics.DEVICES])
        place = TopicPartition(topics.DEVICES, 0)

        def listing(client: object) -> Callable[[], object]:
            return lambda: client.list_topics(timeout=QUESTION_S)  # type: ignore[attr-defined]

        def ends(client: object) -> Callable[[], object]:
            return lambda: offsets.listed(client, [place], OffsetSpec.latest())  # type: ignore[arg-type]

        def committed(ask: Callable[[Callable[..., object]], object]) -> Callable[[], object]:
            return lambda: ask(lambda one: one.list_topics(topics.DEVICES, timeout=QUESTION_S))

        controls = [Asking(f"control {n}", listing(unmade(config))) for n in range(FLEET)]
        ours = [Asking(f"topics {n}", listing(clients.admin(config))) for n in range(FLEET)]
        ours += [Asking(f"offsets {n}", ends(clients.admin(config))) for n in range(FLEET)]
        for n in range(FLEET):
            consumer = clients.asked_consumer(config, f"asker-{n}")

            def ask(what: Callable[..., object], consumer: object = consumer) -> object:
                with consumer.asked() as client:  # type: ignore[attr-defined]
                    return what(client)

            ours.append(Asking(f"consumer {n}", committed(ask)))
        with asking([*controls, *ours]):
            wait_until(lambda: all(one.answered_s for one in (*controls, *ours)), "all are answered")
            for _ in range(4):
                shut_out(gate, config)
            let_in_s = time.monotonic()
            wait_until(lambda: all(one.answered_s > let_in_s for one in ours), "ours are answered again")
            took_s = time.monotonic() - let_in_s
            dead = [one.name for one in controls if one.answered_s < let_in_s]
            assert dead, "the fault did not happen: no client was left without a broker"
            assert took_s < 30, f"ours were answered after {took_s:.0f} s; without being made anew: {dead}"


