"""Shards between processes: only those that move pause, what Kafka deleted unread is an error, and
rows are few.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import TopicPartition

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.up_places import UpPlaces
from edgewake.protocol import topics
from tests.bridge.running import World, sequenced, start
from tests.sequencer.progress import Progress
from tests.sequencer.test_sequencer import Up
from tests.services import Process, wait_until

DEVICES = topics.UP_PARTITIONS


@contextmanager
def steady_load(here: World, stream: str) -> Iterator[None]:
    """Every 50 ms a frame of a device of each partition of `ew.up`, so that all go on all the
    time.
    """
    up = Up(here, "", stream)
    done = threading.Event()

    def feed() -> None:
        number = 0
        while not done.wait(0.05):
            number += 1
            for i in range(DEVICES):
                up.device, up.partition = f"{stream}-{i}", i % topics.UP_PARTITIONS
                up.put_one(number, flush=False)
            up.flush()

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def shards(process: Process, event: str) -> list[tuple[int, list[int]]]:
    """(time in ms, shards) of each line of the log with this event."""
    lines = [
        json.loads(line)
        for line in process.output().splitlines()
        if f'"event":"sequencer.{event}"' in line
    ]
    return [
        (line["time"], [int(n) for n in re.findall(r"\d+", line["text"].partition("[")[2])])
        for line in lines
    ]


async def test_only_the_shards_that_move_pause_when_a_process_joins_and_when_it_dies(
    here: World,
) -> None:
    """When one joins, the others go on while its shards are restored; when one dies, its shards do
    pause (control), the others do not.
    """
    first = here.sequencer("stays")
    with closing(Progress(here.config)) as progress, steady_load(here, "steady"):

        def polled(condition: bool) -> bool:
            progress.poll(0.05)
            return condition

        wait_until(lambda: polled(all(progress.positions.values())), "every partition goes on")
        second = here.sequencer("joins")
        wait_until(
            lambda: polled(here.metric("joins", "edgewake_sequencer_shards") == 8),
            "the second one serves half",
        )
        (given_up_ms, moved), (served_ms, served) = (
            shards(first, "revoked")[0],
            shards(second, "assigned")[0],
        )
        assert sorted(moved) == served, (
            "one step: what the first one gave up is what the second one got"
        )
        assert len(moved) == 8
        stayed = [p for p in progress.positions if topics.shard_of(p) not in moved]

        def went_on(partition: int, from_ms: float, to_ms: float) -> bool:
            return any(from_ms < at <= to_ms for at in progress.moved_ms[partition])

        wait_until(
            lambda: polled(
                all(went_on(p, served_ms, served_ms + 600_000) for p in progress.positions)
            ),
            "all go on",
        )
        assert all(went_on(p, given_up_ms, served_ms) for p in stayed)
        assert "sequencer.fenced" not in second.output(), (
            "who gave shards up goes on with its others"
        )

        second.kill()
        killed_ms = time.time() * 1000
        gained = len(shards(first, "assigned"))
        wait_until(
            lambda: polled(len(shards(first, "assigned")) > gained),
            "the first one serves all again",
        )
        again_ms, all_shards = shards(first, "assigned")[-1]
        assert all_shards == list(range(topics.SHARDS))
        assert len(shards(first, "revoked")) == 1, "it gave up nothing more"
        assert first.output().count('"event":"sequencer.fenced"') == 1, "of who was killed"
        wait_until(
            lambda: polled(
                all(went_on(p, again_ms, again_ms + 600_000) for p in progress.positions)
            ),
            "all go on",
        )
        resumed_ms = min(
            at
            for p in progress.positions
            if p not in stayed
            for at in progress.moved_ms[p]
            if at > killed_ms
        )
        assert all(went_on(p, killed_ms, resumed_ms) for p in stayed)


async def test_records_that_kafka_deleted_unread_are_an_error_and_the_rest_passes(
    here: World,
) -> None:
    """A running sequencer that is overtaken never goes on elsewhere in silence."""
    up = Up(here, "overtaken-1", "overtaken")
    process = here.sequencer(unknown_s=0.2)
    up.put(1, 2)
    assert await sequenced(here, "overtaken", "overtaken-1", 2) == [1, 2]
    process.freeze()
    partition, first = up.put_one(3)
    for number in range(4, 24):
        up.put_one(number)
    client = clients.admin(here.config)
    place = TopicPartition(topics.UP, partition, first + 20)
    client.delete_records([place])[place].result(10)
    process.thaw()
    wait_until(lambda: '"event":"sequencer.overtaken"' in process.output(), "it is an error")
    (line,) = [
        json.loads(text)
        for text in process.output().splitlines()
        if '"event":"sequencer.overtaken"' in text
    ]
    lost = line["lost_records"]
    assert (line["level"], 0 < lost <= 20) == ("error", True), (
        "the first ones may have been fetched before the process was stopped"
    )
    wait_until(
        lambda: (
            here.metric("sequencer-1", 'edgewake_sequencer_records_total{outcome="overtaken"}')
            == lost
        ),
        "and counted",
    )


@pytest.mark.long
async def test_what_kafka_deleted_unread_is_waited_for_by_nobody(here: World) -> None:
    """Bridges accept nothing while old records wait, so none would come any more that moves the
    position on.
    """
    up = Up(here, "gone-1", "gone")
    process = here.sequencer()
    up.put(1, 2)
    assert await sequenced(here, "gone", "gone-1", 2) == [1, 2]
    process.kill()
    partition, last = [up.put_one(number) for number in range(3, 11)][-1]
    client, place = clients.admin(here.config), TopicPartition(topics.UP, partition, last + 1)
    client.delete_records([place])[place].result(10)
    start(process)
    with closing(UpPlaces(here.config, "test-places")) as places:
        wait_until(lambda: places.sequenced()[partition] == last + 1, "it says that nothing waits")
    wait_until(
        lambda: (
            here.metric("sequencer-1", 'edgewake_sequencer_records_total{outcome="overtaken"}') == 8
        ),
        "they are counted",
    )
    up.put(11)
    assert await sequenced(here, "gone", "gone-1", 4) == [1, 2, 10, 11], (
        "a gap up to the last one that is gone, and what came after it"
    )


@pytest.mark.long
async def test_a_fleet_writes_few_rows_and_a_killed_sequencer_reads_again_what_they_lack(
    here: World,
) -> None:
    """5000 devices, two frames each: a row per record would be 10,000."""
    up = Up(here, "", "fleet")
    process = here.sequencer()
    with closing(Progress(here.config)) as progress:
        wait_until(lambda: progress.waiting() == 0, "what other tests left is passed on")
        rows = progress.rows
        for number in (1, 2):
            for i in range(5000):
                up.device = f"fleet-{i}"
                up.put_one(number, flush=False)
            up.flush()
        wait_until(lambda: progress.waiting() == 0, "all are passed on")
        assert progress.rows - rows < 1000
        process.kill()
        start(process)
        for i in range(5000):
            up.device = f"fleet-{i}"
            up.put_one(2, flush=False)
            up.put_one(3, flush=False)
        up.flush()
        wait_until(lambda: progress.waiting() == 0, "all are passed on")
    for i in (0, 2500, 4999):
        assert await sequenced(here, "fleet", f"fleet-{i}", 3) == [1, 2, 3]
    wait_until(
        lambda: (
            here.metric("sequencer-1", 'edgewake_sequencer_records_total{outcome="repeat"}') == 5000
        ),
        "repeats are known",
    )
