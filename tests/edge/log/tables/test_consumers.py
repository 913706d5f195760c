"""A log with consumers: each has a durable cursor, and what somebody still needs stays, within
bounds.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.consumer import (
    STATE_BYTES_MAX,
    TAIL_READINGS_MAX,
    Chunk,
    Consumer,
    LogRenewedError,
    Tail,
)
from edgewake.edge.log.event_log import Commit, EventLog
from edgewake.edge.log.state import LogClosedError
from edgewake.edge.log.tables.consumers import (
    ConsumerState,
    Missed,
    Received,
    outside,
    passed_by_all,
)
from edgewake.edge.log.tables.schema import LOG_NAME
from tests.edge.helpers import Sent, opened, put, reading
from tests.edge.log.test_event_log import edit
from tests.services import PATIENCE_S, wait_until

pytestmark = pytest.mark.usefixtures("short_waits")

FEW = LogConfig(linger_ms=0, reserve_bytes=0, consumer_bytes=2_000)


def ns(chunk: Chunk) -> list[object]:
    """The `n` of all readings."""
    return [
        fields["n"]
        for item in chunk.items
        if isinstance(item, Received)
        for _, fields in item.readings
    ]


def missed(chunk: Chunk) -> list[tuple[int, int, str]]:
    """What is not there."""
    return [
        (item.first, item.count, item.reason) for item in chunk.items if isinstance(item, Missed)
    ]


def everything(consumer: Consumer, upto: int) -> list[object]:
    """Read until a position of `speed`."""
    found: list[object] = []
    while consumer.cursor["speed"] < upto:
        found += ns(consumer.poll())
    return found


def batches(events: EventLog) -> int:
    """Rows that are kept."""
    count: int = events._writer.ask(
        lambda store: store._db.execute("SELECT count(*) FROM batches").fetchone()[0]
    ).result(10)
    return count


def drain(events: EventLog, sent: Sent) -> None:
    """Until the cloud has all."""
    events.start_sending()
    wait_until(lambda: sent.acknowledge(events) or not events.status().backlog_readings, "drained")


def test_a_consumer_reads_what_was_received_and_goes_on_after_its_last_commit(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as events:
        put(events, range(1, 11))
        mean = events.open_consumer("mean", ["speed"])
        assert mean.state is None
        chunk = mean.poll()
        assert ns(chunk) == list(range(1, 11))
        mean.submit(chunk.cursor, state=b"ten").result(10)
        put(events, range(11, 21))
        assert ns(mean.poll()) == list(range(11, 21))  # and dies before it commits
    with opened(tmp_path) as events:
        mean = events.open_consumer("mean", ["speed"])
        assert (mean.state, ns(mean.poll())) == (b"ten", list(range(11, 21)))


def test_a_cursor_may_stand_inside_a_batch(tmp_path: Path) -> None:
    with opened(tmp_path) as events:
        put(events, range(1, 11))
        mean = events.open_consumer("mean", ["speed"])
        mean.poll()
        mean.submit({"speed": 4}).result(10)
    with opened(tmp_path) as events:
        assert ns(events.open_consumer("mean", ["speed"]).poll()) == list(range(5, 11))


def test_a_batch_goes_when_the_cloud_has_it_and_all_consumers_have_passed_it(
    tmp_path: Path,
) -> None:
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:
        fast, slow = (events.open_consumer(name, ["speed"]) for name in ("fast", "slow"))
        put(events, range(1, 31))
        fast.submit(fast.poll().cursor).result(10)
        assert batches(events) == 3, "the cloud needs them"
        drain(events, sent)
        assert batches(events) == 3, "a consumer needs them"
        chunk = slow.poll()
        slow.submit({"speed": 10}).result(10)
        assert batches(events) == 2
        slow.submit(chunk.cursor).result(10)
        assert batches(events) == 0
        assert events._writer.ask(
            lambda store: (
                store.stored_bytes,
                store._state.retained_bytes,
                store._state.framed_bytes,
            )
        ).result() == (
            0,
            0,
            0,
        )
    assert sent.ns() == list(range(1, 31))


def test_what_consumers_passed_before_goes_with_the_acknowledgement_also_out_of_order(
    tmp_path: Path,
) -> None:
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:
        mean = events.open_consumer("mean", ["speed"])
        put(events, range(1, 31))
        events.start_sending()
        sent.until(3)
        events.free(sent[1].key)
        wait_until(lambda: events.status().backlog_readings == 20, "acknowledged")
        assert batches(events) == 3
        mean.submit(mean.poll().cursor).result(10)
        assert batches(events) == 2, "only what is not acknowledged stays"
        events.free(sent[0].key)
        events.free(sent[2].key)
        wait_until(lambda: batches(events) == 0, "all passed")


def test_a_forgotten_consumer_holds_nothing(tmp_path: Path) -> None:
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:
        events.open_consumer("mean", ["speed"])
        put(events, range(1, 31))
        drain(events, sent)
        assert batches(events) == 3
        asyncio.run(events.forget_consumer("mean"))
        assert (batches(events), events.consumers()) == (0, frozenset())
    with opened(tmp_path) as events:
        assert events.consumers() == frozenset()


def test_a_consumer_that_lags_costs_a_bounded_part_of_the_disk_and_is_told_what_it_missed(
    tmp_path: Path,
) -> None:
    sent = Sent()
    with opened(tmp_path, sent=sent, config=FEW) as events:
        mean = events.open_consumer("mean", ["speed"])
        put(events, range(1, 301))
        drain(events, sent)
        assert events._writer.ask(lambda store: store._state.retained_bytes).result(10) <= 2_000
        mean._tails["speed"].clear()
        chunk = mean.poll()
        [(first, count, reason)] = missed(chunk)
        assert (first, reason, count + len(ns(chunk))) == (1, "lagged", 300)
        assert 0 < count < 300
        mean.submit(chunk.cursor).result(10)
        assert batches(events) == 0
    assert sent.ns() == list(range(1, 301)), "the cloud missed nothing"
    with opened(tmp_path) as events:
        found = events._writer.ask(lambda store: store.consumer("mean")).result(10)
        assert found == ConsumerState("mean", {"speed": 300}, count, found.commit)


def test_what_the_cloud_is_told_is_lost_is_told_to_consumers_too(tmp_path: Path) -> None:
    with opened(tmp_path) as events:
        put(events, range(1, 31))
        events.stream("speed").lose(5, "queue_full")
        wait_until(lambda: events.status().backlog_readings == 35, "said")
        put(events, range(31, 41))
    edit(tmp_path, "UPDATE batches SET body = CAST(body || ' ' AS BLOB) WHERE first = 11")
    with opened(tmp_path) as events:
        chunk = events.open_consumer("mean", ["speed"]).poll()
    assert ns(chunk) == [*range(1, 11), *range(21, 41)]
    assert missed(chunk) == [(11, 10, "corrupt"), (31, 5, "queue_full")]


def test_derived_readings_cursor_and_state_are_one_transaction(tmp_path: Path) -> None:
    """Killed by an error in the middle of the commit, none of them is there."""
    armed = list[bool]()

    def fail(place: str) -> None:
        if place == "inserted" and armed:
            armed.append(True)
            raise RuntimeError("the process dies here")

    with opened(tmp_path, failpoint=fail) as events:
        put(events, range(1, 11))
        mean = events.open_consumer("mean", ["speed"])
        chunk = mean.poll()
        armed.append(True)
        answer = mean.submit(chunk.cursor, state=b"ten", derived={"speed_mean": [reading(5)]})
        with pytest.raises(LogClosedError):
            answer.result(10)
    assert len(armed) == 2, "the fault did not fire"
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:
        mean = events.open_consumer("mean", ["speed"])
        assert mean.state is None
        mean.submit(mean.poll().cursor, state=b"ten", derived={"speed_mean": [reading(5)]}).result(
            10
        )
    with opened(tmp_path, sent=sent) as events:
        mean = events.open_consumer("mean", ["speed"])
        assert (mean.state, mean.poll().items) == (b"ten", [])
        drain(events, sent)
    assert [out.key.stream for out in sent] == ["speed", "speed_mean"]


def test_several_streams_and_positions_are_one_transaction(tmp_path: Path) -> None:
    with opened(tmp_path) as events:
        events.append(
            Commit({"speed": [reading(1)], "street": [reading(2), reading(3)]}, {"tail": "3"})
        ).result(10)
        commits = events._writer.ask(
            lambda store: {row[0] for row in store._db.execute("SELECT commit_number FROM batches")}
        ).result(10)
        assert (events.position("tail"), len(commits)) == ("3", 1)


def test_a_consumer_may_begin_with_the_next_reading_or_with_the_oldest_there_is(
    tmp_path: Path,
) -> None:
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:
        put(events, range(1, 11))
        drain(events, sent)
        put(events, range(11, 21))
        late, early = (
            events.open_consumer("late", ["speed"], at_end=True),
            events.open_consumer("early", ["speed", "new"]),
        )
        put(events, range(21, 31))
        assert everything(late, 30) == list(range(21, 31))
        assert everything(early, 30) == list(range(11, 31))
        put(events, range(31, 33), "new")
        assert ns(early.poll()) == [31, 32]


def test_a_program_error_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as events:
        mean = events.open_consumer("mean", ["speed"])
        with pytest.raises(ValueError, match="beyond what it read"):
            mean.submit({"speed": 1})
        with pytest.raises(ValueError, match="expected at most"):
            mean.submit({}, state=bytes(STATE_BYTES_MAX + 1))
        with pytest.raises(ValueError, match="derives a stream that it reads"):
            mean.submit({}, derived={"speed": [reading()]})


async def test_a_consumer_waits_for_more_and_gets_it_while_it_is_being_written(
    tmp_path: Path,
) -> None:
    """Processing goes on meanwhile: the writer stands before its commit, and the reading is
    read.
    """
    reached, go_on = threading.Event(), threading.Event()

    def stop(place: str) -> None:
        if place == "inserted" and reached.is_set() is False and armed:
            reached.set()
            go_on.wait(2 * PATIENCE_S)

    armed = list[bool]()
    with opened(tmp_path, failpoint=stop) as events:
        mean = await events.consumer("mean", ["speed"])
        armed.append(True)
        waiting = asyncio.create_task(mean.read())
        log = events.stream("speed")
        ticket = log.append(reading(1))
        chunk = await asyncio.wait_for(waiting, 10)
        assert (ns(chunk), log.accepted_through) == ([1], 0)
        committed = asyncio.create_task(
            mean.commit(chunk.cursor, state=b"one", derived={"speed_mean": [reading(1)]})
        )
        await asyncio.to_thread(reached.wait, 10)
        assert not committed.done()
        go_on.set()
        await asyncio.wait_for(committed, 10)
        assert log.accepted_through == ticket, "no commit before its input"


async def test_derived_readings_wait_for_room_and_then_go(tmp_path: Path) -> None:
    config = LogConfig(linger_ms=0, reserve_bytes=0, queue_readings_max=1)
    with opened(tmp_path, config=config) as events:
        put(events, range(1, 2))
        mean = await events.consumer("mean", ["speed"])
        chunk = await mean.read()
        for n in range(20):
            await asyncio.wait_for(
                mean.commit(
                    chunk.cursor, derived={"speed_mean": [reading(n), reading(n)]}, wait=False
                ),
                10,
            )
        await asyncio.wait_for(mean.commit(chunk.cursor), 10)
        assert (await events.ask_status()).backlog_readings == 41


def test_after_damage_a_consumer_goes_on_from_what_was_saved(tmp_path: Path) -> None:
    """The log's first page is gone, and with it the table of consumers; the sidecar knows the
    cursor, nobody the state.
    """
    with opened(tmp_path) as events:
        put(events, range(1, 31))
        mean = events.open_consumer("mean", ["speed"])
        mean.poll()
        mean.submit({"speed": 10}, state=b"ten").result(10)
    log = (tmp_path / LOG_NAME).read_bytes()
    (tmp_path / LOG_NAME).write_bytes(bytes(1024) + log[1024:])
    with opened(tmp_path) as events:
        assert events.epoch_began == "damaged"
        mean = events.open_consumer("mean", ["speed"])
        assert mean.state is None
        wait_until(lambda: not events._writer.store.is_salvaging, "saved")
        assert ns(mean.poll()) == list(range(11, 31))


async def test_a_consumer_that_waits_while_a_damaged_log_is_saved_reads_on_when_it_is(
    tmp_path: Path,
) -> None:
    """Nothing new comes: the end of the rescue itself has to wake it."""
    with opened(tmp_path) as events:
        put(events, range(1, 31))
        events.open_consumer("mean", ["speed"])
    log = (tmp_path / LOG_NAME).read_bytes()
    (tmp_path / LOG_NAME).write_bytes(bytes(1024) + log[1024:])
    go_on, arrived = threading.Event(), threading.Event()

    def wait(place: str) -> None:
        if place == "salvage ends":
            arrived.set()
            go_on.wait(30)

    with opened(tmp_path, failpoint=wait) as events:
        consumer = asyncio.create_task(events.consumer("mean", ["speed"]))
        await asyncio.to_thread(arrived.wait, 10)
        assert arrived.is_set(), "the log is not being saved"
        reading_on = asyncio.create_task(_read_all(consumer, 30))
        await asyncio.sleep(0)
        go_on.set()
        assert await asyncio.wait_for(reading_on, 10) == list(range(1, 31))


async def _read_all(consumer: asyncio.Task[Consumer], count: int) -> list[object]:
    found: list[object] = []
    while len(found) < count:
        found += ns(await (await consumer).read())
    return found


def test_damage_while_running_is_said_once(tmp_path: Path) -> None:
    armed = list[bool]()

    def damage(place: str) -> None:
        if place == "inserted" and armed:
            armed.clear()
            raise sqlite3.DatabaseError("malformed")

    with opened(tmp_path, failpoint=damage) as events:
        put(events, range(1, 11))
        mean = events.open_consumer("mean", ["speed"])
        mean.submit(mean.poll().cursor, state=b"ten").result(10)
        armed.append(True)
        put(events, range(11, 21))
        assert not armed, "the fault did not fire"
        with pytest.raises(LogRenewedError):
            mean.poll()
        assert mean.state == b"ten", "its table could still be read"
        wait_until(lambda: not events._writer.store.is_salvaging, "saved")
        assert everything(mean, 20) == list(range(11, 21))


def test_the_tail_forgets_rather_than_grow() -> None:
    tail = Tail()
    tail.add(Received("speed", 1, [reading(n) for n in range(TAIL_READINGS_MAX)]))
    assert tail.has_after(0)
    tail.add(Received("speed", TAIL_READINGS_MAX + 1, [reading()]))
    assert not tail.has_after(0)
    tail.add(Received("speed", TAIL_READINGS_MAX + 2, [(1, {"a": 1, "b": None})]))
    assert not tail.has_after(0), "what comes before is in the log"
    assert list(tail.after(TAIL_READINGS_MAX + 1, 10)) == [
        Received("speed", TAIL_READINGS_MAX + 2, [(1, {"a": 1})])
    ]


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([], [(1, 9)]),
        ([(3, 4)], [(1, 2), (5, 9)]),
        ([(1, 9)], []),
        ([(0, 2), (5, 20)], [(3, 4)]),
        ([(2, 2), (3, 3), (30, 40)], [(1, 1), (4, 9)]),
    ],
)
def test_what_is_outside_of_ranges(
    ranges: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    assert list(outside(ranges, 1, 9)) == expected


def test_the_slowest_consumer_decides() -> None:
    consumers = [ConsumerState("a", {"speed": 5}), ConsumerState("b", {"speed": 3, "street": 1})]
    assert [passed_by_all(consumers, stream) for stream in ("speed", "street", "none")] == [
        3,
        1,
        None,
    ]
