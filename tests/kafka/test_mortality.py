"""When a client of Kafka is given up: after a time without an answer, and never because Kafka
refuses something.
"""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from edgewake.cloud.kafka.mortality import Mortality, is_answer


def test_a_client_that_got_no_answer_for_its_time_is_over():
    client = Mortality(5.0)
    client.unanswered(100.0)
    assert not client.is_over(104.9)
    assert client.is_over(105.0)


def test_one_answer_gives_it_all_its_time_again():
    client = Mortality(5.0)
    client.unanswered(100.0)
    client.answered()
    assert not client.is_over(1000.0)
    client.unanswered(1000.0)
    assert not client.is_over(1004.9)


def test_the_time_counts_from_the_first_question_that_failed():
    client = Mortality(5.0)
    for asked_s in (100.0, 104.0):
        client.unanswered(asked_s)
    assert client.is_over(105.0)


def test_the_next_client_has_its_own_time():
    client = Mortality(5.0)
    client.unanswered(100.0)
    client.made_anew()
    assert not client.is_over(200.0)


def test_each_client_after_one_without_an_answer_has_twice_its_time_up_to_a_minute():
    client = Mortality(5.0)
    times = []
    for start_s in range(0, 1000, 100):
        client.unanswered(float(start_s))
        times.append(next(s for s in range(1, 100) if client.is_over(start_s + s)))
        client.made_anew()
    assert times == [5, 10, 20, 40, 60, 60, 60, 60, 60, 60]
    client.unanswered(0.0)
    client.answered()
    client.unanswered(0.0)
    assert client.is_over(5.0)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError._TRANSPORT, False),
        (KafkaError._TIMED_OUT, False),
        (KafkaError._NOENT, False),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, True),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, True),
    ],
)
def test_what_kafka_refuses_is_an_answer(code: int, expected: bool):
    assert is_answer(KafkaError(code)) is expected
