"""A shard is served, and a process says that it is ready, when everything that the process before
knew is there: rows and replay.
"""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.sequencer.membership import Membership
from edgewake.protocol import topics
from edgewake.protocol.errors import LocalError
from tests.bridge.running import World, sequenced
from tests.sequencer.progress import Progress
from tests.sequencer.test_lag import ready
from tests.sequencer.test_sequencer import Up
from tests.services import Process, wait_until

DEVICES = 10 * topics.UP_PARTITIONS


def put_all(here: World, stream: str, *frames: int) -> None:
    """These frames of each of many devices, over all partitions alike."""
    up = Up(here, "", stream)
    for number in frames:
        for i in range(DEVICES):
            up.device, up.partition = f"{stream}-{i}", i % topics.UP_PARTITIONS
            up.put_one(number, flush=False)
    up.flush()


def events(process: Process, event: str, *, after: int = 0) -> list[dict[str, object]]:
    """Lines of the log with this event, from character `after` on."""
    return [
        json.loads(line)
        for line in process.output()[after:].splitlines()
        if f'"event":"{event}"' in line
    ]


def states(here: World, *names: str) -> float:
    """How many the processes say that they know."""
    return sum(here.metric(name, "edgewake_sequencer_states") for name in names)


def states_of_before(here: World, progress: Progress, *names: str) -> float:
    """How many they know when they have passed on what other tests left."""
    for name in names:
        wait_until(lambda name=name: ready(here, name) == 200, "it says that it is ready")  # type: ignore[misc]
    wait_until(lambda: progress.waiting() == 0, "what other tests left is passed on")
    return states(here, *names)


async def test_a_killed_one_is_ready_again_when_everything_is_read_again_that_no_row_has(
    here: World,
) -> None:
    """Control: the killed one had written next to no rows, so nearly all states come from the
    records.
    """
    process = here.sequencer(batch_records=20)
    with closing(Progress(here.config)) as progress:
        known = states_of_before(here, progress, "sequencer-1") + DEVICES
        put_all(here, "replayed", 1)
        wait_until(lambda: progress.waiting() == 0, "all are passed on")
        wait_until(lambda: states(here, "sequencer-1") >= known, "all are known")
        known = states(here, "sequencer-1")  # a state that another test left may have come late
        process.kill()
        before = len(process.output())
        process.start()
        wait_until(
            lambda: _answers(here) and ready(here, "sequencer-1") == 200, "it says that it is ready"
        )
        assert states(here, "sequencer-1") == known
    restored = events(process, "sequencer.restored", after=before)
    assert len(restored) == topics.SHARDS
    assert sum(int(str(one["records"])) for one in restored) > DEVICES / 2, (
        "something had to be read again"
    )


def _answers(here: World) -> bool:
    try:
        ready(here, "sequencer-1")
    except OSError:
        return False
    return True


@pytest.mark.long
async def test_shards_of_a_killed_one_do_not_wait_behind_the_backlog_of_the_one_that_lives(
    here: World,
) -> None:
    """Its states are there, those that only records tell of too, while the other is still busy with
    its own; and no frame passes twice.
    """
    # Slow: busy for a minute.
    victim, survivor = (
        here.sequencer("dies", batch_records=1),
        here.sequencer("lives", batch_records=1),
    )
    for name in ("dies", "lives"):
        wait_until(
            lambda name=name: here.metric(name, "edgewake_sequencer_shards") == topics.SHARDS / 2,
            "each serves half",
        )
    with closing(Progress(here.config)) as progress:
        known = states_of_before(here, progress, "dies", "lives") + DEVICES
        put_all(here, "moved", 1)
        wait_until(lambda: progress.waiting() == 0, "all are passed on")
        wait_until(lambda: states(here, "dies", "lives") >= known, "all are known")
        victims, before = states(here, "dies"), len(survivor.output())
        put_all(here, "moved", *range(2, 22))
        victim.kill()
        wait_until(
            lambda: here.metric("lives", "edgewake_sequencer_shards") == topics.SHARDS,
            "it serves all",
        )
        restored = events(survivor, "sequencer.restored", after=before)
        assert sum(int(str(one["states"])) for one in restored) == victims
        assert sum(int(str(one["records"])) for one in restored) > 0, (
            "something had to be read again"
        )
        own = [
            p
            for p in progress.positions
            if topics.shard_of(p) not in {one["shard"] for one in restored}
        ]
        progress.poll()
        ends = progress.ends()
        assert any(progress.positions[p] < ends[p] for p in own), "it was busy with its own"
        survivor.kill()
        here.sequencer("fast")
        wait_until(lambda: progress.waiting() == 0, "all are passed on")
    for i in (0, 1, DEVICES // 2, DEVICES - 1):
        assert await sequenced(here, "moved", f"moved-{i}", 21) == list(range(1, 22))


@pytest.mark.long
async def test_one_that_has_not_heard_from_its_group_is_not_ready_and_one_without_shards_is(
    here: World,
) -> None:
    """Twice as many members as there are partitions of a topic: the group tells those who get none,
    too.
    """
    topic_admin.ensure_topics(here.config, [topics.SEQUENCE])
    members = [_member(here, f"member-{i}") for i in range(topics.SHARDS + 2)]
    try:
        assert not any(member.is_joined for member in members)

        def all_joined() -> bool:
            for member in members:
                member.poll(0.01)
            return all(member.is_joined for member in members)

        wait_until(all_joined, "each knows what it serves, be it nothing")
    finally:
        for member in members:
            member.close()


async def test_a_session_that_kafka_does_not_allow_is_an_error_with_its_key(here: World) -> None:
    """Ours allows one second, and not less."""
    member = _member(here, "hasty", session_s=0.5)
    said: list[str] = []

    def refused() -> bool:
        try:
            member.poll(0.1)
        except LocalError as error:
            said.append(str(error))
        return bool(said)

    try:
        wait_until(refused, "Kafka refuses")
    finally:
        member.close()
    assert said[0].startswith("session_s = 0.5: expected what Kafka allows")


def _member(here: World, name: str, *, session_s: float = 6.0) -> Membership:
    return Membership(
        here.config, name, session_s=session_s, on_gained=lambda _: None, on_lost=lambda _: None
    )
