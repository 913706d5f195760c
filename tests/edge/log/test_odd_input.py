"""Readings that break off half-way and texts that no file can hold cost who leaves them with the
log, and nobody else.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgewake.edge.log.event_log import Commit, EventLog
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.state import LogState
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.writing.queue import Queue, Queues, size_of
from tests.edge.helpers import Sent, opened, put, reading
from tests.services import PATIENCE_S, wait_until

HALF = "half of a pair \ud83d"
STRAY = "a file's name \udcff"


def broken_off(count: int) -> Iterator[Reading]:
    """A source that fails while it hands over."""
    for n in range(count):
        yield reading(n)
    raise ValueError("the rest is unreadable")


@pytest.mark.parametrize("count", [0, 1, 5])
def test_readings_that_break_off_half_way_are_left_out_whole(tmp_path: Path, count: int) -> None:
    """Those before the break were in the queue and not in its count: what came later was called
    durable before it was written.
    """
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:
        log = events.stream("speed")
        with pytest.raises(ValueError, match="unreadable"):
            log.append_all(broken_off(count))
        assert (log.waiting, log.accepted_through) == (0, 0)
        ticket = log.append(reading(100))
        assert ticket == 1
        assert log.wait_accepted(ticket, timeout_s=PATIENCE_S)
        assert (log.waiting, log.accepted_through) == (0, 1)
        events.start_sending()
        wait_until(lambda: sent.ns() == [100], "what came whole")


def test_a_reading_that_is_none_leaves_the_queue_as_it_was() -> None:
    queues = Queues(readings_max=100, bytes_max=100_000)
    queue = queues.of("speed", Lane.NORMAL)
    queues.add(queue, [reading(1)])
    before = (queue.size, queues.size, queue.appended, queue.count)
    with pytest.raises((TypeError, AttributeError, IndexError)):
        queues.add(queue, [reading(2), (1,), reading(3)])  # type: ignore[list-item]
    assert (queue.size, queues.size, queue.appended, queue.count) == before
    assert queue.size == size_of(reading(1))


def test_what_is_handed_over_is_the_queues_own() -> None:
    """A source may go on with its list."""
    queues = Queues(readings_max=100, bytes_max=100_000)
    queue, mine = queues.of("speed", Lane.NORMAL), [reading(1)]
    queues.add(queue, mine)
    mine.append(reading(2))
    assert (list(queue.take()), queue.appended) == ([reading(1)], 1)


def test_an_iterator_counts_as_what_it_gives() -> None:
    queues = Queues(readings_max=100, bytes_max=100_000)
    queue: Queue = queues.of("speed", Lane.NORMAL)
    queues.add(queue, iter([reading(1), reading(2)]))
    queues.add(queue, (reading(n) for n in (3,)))
    assert (queue.appended, queue.count, queue.size) == (
        3,
        3,
        sum(map(size_of, map(reading, (1, 2, 3)))),
    )


# texts that are no UTF-8


def with_position(events: EventLog, name: str, at: str) -> None:
    events.stream("speed").append_all([reading(1)], position=(name, at))


ODD_TEXTS: dict[str, Callable[[EventLog], object]] = {
    "a source's name": lambda events: with_position(events, STRAY, "7"),
    "a source's place": lambda events: with_position(events, "file", HALF),
    "a source's place in a commit": lambda events: events.append(
        Commit({"speed": [reading(1)]}, {"file": STRAY})
    ),
    "a source's name in a commit": lambda events: events.append(
        Commit({"speed": [reading(1)]}, {HALF: "7"})
    ),
    "a consumer's name": lambda events: events.open_consumer(STRAY, ["speed"]),
}


@pytest.mark.parametrize("what", ODD_TEXTS)
def test_a_text_that_no_file_can_hold_is_refused_and_the_log_goes_on(
    tmp_path: Path, what: str
) -> None:
    """It ended the writer, or a sound log was set aside as damaged."""
    with opened(tmp_path) as events:
        epoch = events.epoch
        with pytest.raises(UnicodeEncodeError):
            ODD_TEXTS[what](events)
        put(events, range(2, 5))
        assert (events.state, events.epoch) == (LogState.GOOD, epoch)
        assert events.status().backlog_readings == 3
    assert not list(tmp_path.glob("*.damaged-*"))


async def test_a_consumer_that_is_awaited_is_refused_such_a_name_too(tmp_path: Path) -> None:
    with opened(tmp_path) as events:
        with pytest.raises(UnicodeEncodeError):
            await events.consumer(HALF, ["speed"])
        assert events.consumers() == frozenset()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\x00",
        "x" * 100_000,
        "Straße 7 \N{BLACK SCISSORS}\ufe0f",
        "\uffff",
        "a\nb",
        "'; DROP TABLE meta; --",
    ],
)
def test_any_other_text_is_a_place_and_comes_back_as_it_was(tmp_path: Path, text: str) -> None:
    for _ in range(2):
        with opened(tmp_path) as events:
            events.append(Commit({"speed": [reading(1)]}, {text: text})).result(PATIENCE_S)
            assert events.position(text) == text
    with sqlite3.connect(tmp_path / "events.db") as db:
        assert db.execute("SELECT name, position FROM sources").fetchall() == [(text, text)]
    db.close()


@pytest.mark.parametrize(
    "folder", ["a#b", "what?", "100%", "a%20b", "ä ö", "x&mode=memory", "-", "events.db"]
)
def test_the_log_is_found_in_a_folder_of_any_name(tmp_path: Path, folder: str) -> None:
    """Commands that read it looked elsewhere, and said that an empty log is sound."""
    from edgewake.edge.log.damage import audit

    with opened(tmp_path / folder) as events:
        put(events, range(3))
    assert audit.verify(tmp_path / folder) == audit.Verdict(batches=1, readings=3)
    assert len(list(audit.export(tmp_path / folder))) == 3
    assert audit.backup(tmp_path / folder, tmp_path / "copy.db") > 0


@pytest.mark.parametrize("folder", ["a#b", "100%"])
def test_a_damaged_log_is_saved_in_a_folder_of_any_name(tmp_path: Path, folder: str) -> None:
    """What it knew itself was looked for elsewhere: without its sidecar everything in it was
    gone.
    """
    with opened(tmp_path / folder) as events:
        put(events, range(3))
        events.append(Commit({}, {"file": "17"})).result(PATIENCE_S)
    (tmp_path / folder / "epoch").unlink()
    (tmp_path / folder / "events.db").rename(tmp_path / folder / "events.db.damaged-1")
    sent = Sent()
    with opened(tmp_path / folder, sent=sent) as events:
        assert events.epoch_began == "damaged"
        assert events.position("file") == "17"
        events.start_sending()
        wait_until(lambda: sent.ns() == [0, 1, 2], "what was in it")
