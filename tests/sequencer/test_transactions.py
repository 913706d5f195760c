"""Who takes a shard over shuts out who served it, and reads all that will ever be of that one: on a
real Kafka, which ends no transaction by itself (conftest).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

from edgewake.cloud.kafka import clients, offsets, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.sequencer.config import SequencerConfig
from edgewake.cloud.sequencer.shard import Shard
from edgewake.cloud.sequencer.transactions import SessionTransactions, claim_key, claimed_by
from edgewake.protocol import topics
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.frames.sequence import POSITION_KEY, Position, encode_positions
from tests.bridge.running import World
from tests.services import Kafka, wait_until

SHARD = 5
"""Its first partition of `ew.up` has the same number."""


@pytest.fixture
def config(own_kafka: Kafka) -> KafkaConfig:
    config = KafkaConfig(bootstrap=own_kafka.bootstrap)
    topic_admin.ensure_topics(config, [topics.UP, topics.SEQUENCE, topics.DEVICES, topics.DEAD])
    return config


@pytest.fixture
def session(config: KafkaConfig) -> Iterator[type[SessionTransactions]]:
    """Makes sessions, whose claims are removed at the end."""
    made: list[SessionTransactions] = []

    class Session(SessionTransactions):
        def __init__(self) -> None:
            super().__init__(config, f"test-{uuid.uuid4().hex}")
            made.append(self)

    yield Session  # type: ignore[misc]
    clearing = SessionTransactions(config, f"test-{uuid.uuid4().hex}")
    clearing.shut_out(one.id for one in made)
    with clearing.transaction():
        for one in made:
            clearing.producer.produce(topics.SEQUENCE, None, claim_key(one.id), SHARD)


def write(session: SessionTransactions, emitted_before: int) -> None:
    """A position of the shard, within a transaction; it is with Kafka."""
    session.producer.produce(
        topics.SEQUENCE, encode_positions({SHARD: Position(0, emitted_before)}), POSITION_KEY, SHARD
    )
    assert not session.producer.flush(30)


def serve(config: KafkaConfig, session: SessionTransactions) -> Shard:
    bounds = SequencerConfig(kafka=config).bounds()
    return Shard.serve(
        SHARD, config, part="test", bounds=bounds, transactions=session, is_wanted=lambda: True
    )


def position(shard: Shard) -> int:
    return shard.partitions[SHARD].position.emitted_before


def test_what_who_died_committed_is_read_and_what_it_left_open_is_not(
    config: KafkaConfig, session: type[SessionTransactions]
) -> None:
    dead = session()
    dead.claim([SHARD])
    with dead.transaction():
        write(dead, 701)
    dead.producer.begin_transaction()
    write(dead, 702)
    successor = session()
    successor.claim([SHARD])
    assert position(serve(config, successor)) == 701


@pytest.mark.parametrize("has_claim", [True, False])
def test_who_wakes_later_cannot_write(
    config: KafkaConfig, session: type[SessionTransactions], has_claim: bool
) -> None:
    """Control: without a claim nobody knows of it, and it can."""
    sleeper = session()
    if has_claim:
        sleeper.claim([SHARD])
    successor = session()
    successor.claim([SHARD])
    serve(config, successor)
    if has_claim:
        with pytest.raises(KafkaException) as refused, sleeper.transaction():
            write(sleeper, 703)
        assert clients.is_fenced(refused.value.args[0])
    else:
        with sleeper.transaction():
            write(sleeper, 703)


def test_of_two_that_died_one_after_the_other_both_are_shut_out(
    config: KafkaConfig, session: type[SessionTransactions]
) -> None:
    """The second one died before it had shut out the first one, and had written all the same: what
    Kafka hides for one hides the other.
    """
    first, second = session(), session()
    first.claim([SHARD])
    first.producer.begin_transaction()
    write(first, 704)
    second.claim([SHARD])
    second.producer.begin_transaction()
    write(second, 705)
    successor = session()
    successor.claim([SHARD])
    before = position(serve(config, successor))
    assert before not in (704, 705)
    for dead in (first, second):
        with pytest.raises(KafkaException):
            dead.producer.commit_transaction(30)


def test_who_gave_the_shard_away_goes_on_with_others(
    config: KafkaConfig, session: type[SessionTransactions]
) -> None:
    """Control: who did not is fenced (above)."""
    giver = session()
    giver.claim([SHARD])
    giver.take_back([SHARD])
    successor = session()
    successor.claim([SHARD])
    serve(config, successor)
    with giver.transaction():
        giver.producer.produce(topics.SEQUENCE, None, claim_key(giver.id), SHARD + 1)


def test_who_claimed_before_another_serves_nothing(
    config: KafkaConfig, session: type[SessionTransactions]
) -> None:
    """The group gave the shard away while it was on its way there: it leaves the other one
    alone.
    """
    slow, successor = session(), session()
    slow.claim([SHARD])
    successor.claim([SHARD])
    with pytest.raises(Unavailable, match=f"shard {SHARD} was claimed by another session"):
        serve(config, slow)
    with successor.transaction():
        write(successor, 706)


def claims(config: KafkaConfig, shard: int) -> set[str]:
    """Who serves it, by its rows."""
    found: set[str] = set()
    with closing(clients.consumer(config, "test-claims")) as rows:
        _, end = offsets.watermarks(rows, topics.SEQUENCE, shard)
        rows.assign([TopicPartition(topics.SEQUENCE, shard, OFFSET_BEGINNING)])
        while rows.position([TopicPartition(topics.SEQUENCE, shard)])[0].offset < end:
            message = rows.poll(0.1)
            if (
                message is not None
                and (claimant := claimed_by((message.key() or b"").decode())) is not None
            ):
                (found.discard if message.value() is None else found.add)(claimant)
    return found


@pytest.mark.long
async def test_a_shard_has_one_claim_and_none_when_nobody_serves_it(here: World) -> None:
    """After kills, too: who comes next removes those of who died, and every shard is claimed by one
    session.
    """
    process = here.sequencer("claims")
    for _ in range(2):
        process.kill()
        process.start()
        served = process.output().count('"event":"sequencer.assigned"')
        wait_until(
            lambda served=served: process.output().count('"event":"sequencer.assigned"') > served,
            "it serves",
        )  # type: ignore[misc]
    found = [claims(here.config, shard) for shard in range(topics.SHARDS)]
    wait_until(
        lambda: all(len(claims(here.config, shard)) == 1 for shard in range(topics.SHARDS)),
        f"one claim each: {found}",
    )
    assert len(set().union(*(claims(here.config, shard) for shard in range(topics.SHARDS)))) == 1
    assert len(set(re.findall("fenced (sequencer-claims-[0-9a-f]+)", process.output()))) == 2, (
        "each session that was killed"
    )
    assert process.stop() == 0
    assert not any(claims(here.config, shard) for shard in range(topics.SHARDS))
