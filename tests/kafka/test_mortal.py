"""Clients of Kafka that are made anew: who waits for an answer of the old one is told."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.mortal import Admin
from edgewake.protocol import topics
from tests.services import free_ports

PLACE = TopicPartition("any", 0)
TIMEOUT_S = 2.0
WAIT_S = TIMEOUT_S + 3.0


class Clock:
    """Seconds that the test sets."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def of_nobody() -> AdminClient:
    """A client of a Kafka that is not there."""
    (port,) = free_ports(1)
    return AdminClient(
        {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0, "error_cb": lambda _: None}
    )


def asked(client: Any) -> Future[Any]:
    """A question that nobody answers."""
    futures: Mapping[TopicPartition, Future[Any]] = client.list_offsets(
        {PLACE: OffsetSpec.latest()}, request_timeout=TIMEOUT_S
    )
    return futures[PLACE]


def test_librdkafka_forgets_the_questions_of_a_client_that_nobody_refers_to() -> None:
    """The control of the next one."""
    client = of_nobody()
    future = asked(client)
    del client
    gc.collect()
    with pytest.raises(TimeoutError):
        future.result(WAIT_S)


def test_who_asked_a_client_that_was_given_up_is_told_that_it_was_not_answered() -> None:
    clock = Clock()
    made: list[None] = []

    def make() -> AdminClient:
        made.append(None)
        return of_nobody()

    admin = Admin(make, "test", clock)
    with pytest.raises(KafkaException):
        asked(admin).result(WAIT_S)
    waits = asked(admin)
    clock.now_s = 60.0
    asked(admin)
    assert len(made) == 2, "the client was not made anew"
    gc.collect()
    with pytest.raises(KafkaException):
        waits.result(WAIT_S)


def test_what_a_client_that_was_given_up_hears_says_nothing_about_the_next_one() -> None:
    clock = Clock()
    made: list[None] = []

    def make() -> AdminClient:
        made.append(None)
        return of_nobody()

    admin = Admin(make, "test", clock)
    with pytest.raises(KafkaException):
        asked(admin).result(WAIT_S)
    late = asked(admin)
    clock.now_s = 60.0
    fresh = asked(admin)
    assert len(made) == 2, "the client was not made anew"
    for future in (late, fresh):
        with pytest.raises(KafkaException):
            future.result(WAIT_S)
    clock.now_s = 64.0
    asked(admin)
    assert len(made) == 2


ONCE = """
import sys
import time
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from edgewake.cloud.kafka.mortal import Admin

def make():
    return AdminClient({"bootstrap.servers": sys.argv[1]})

def ask(admin):
    place = TopicPartition(sys.argv[2], 0)
    future = admin.list_offsets({place: OffsetSpec.latest()}, request_timeout=10)[place]
    %s
    try:
        future.result()
    except KafkaException:
        pass  # a topic that was made a moment ago
    del future

for _ in range(20):
    ask(%s)
print("lives")
"""


def ended(program: str, config: KafkaConfig) -> tuple[int, str]:
    """Exit code and output of a program that asks this Kafka."""
    done = subprocess.run(
        [sys.executable, "-c", program, config.bootstrap, topics.DEVICES],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.services
def test_a_client_that_is_dropped_with_its_last_answer_does_not_end_the_process(
    kafka_config: KafkaConfig,
) -> None:
    """The control: librdkafka ends a process in which the callback held the last reference."""
    topic_admin.ensure_topics(kafka_config, [topics.DEVICES])
    held = "future.add_done_callback(lambda _, client=admin: time.sleep(0.05)); del admin"
    assert ended(ONCE % (held, "make()"), kafka_config)[0] == -signal.SIGABRT
    assert ended(ONCE % ("del admin", 'Admin(make, "test")'), kafka_config) == (0, "lives\n")
