"""A log that is damaged while the agent runs and begins anew: what consumers and the uplink still
hold of the old one harms nobody.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from edgewake.edge.log.consumer import Consumer, LogRenewedError
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.keeping.work import FrameKey
from edgewake.edge.log.tables.consumers import Received
from edgewake.edge.log.tables.schema import LOG_NAME
from edgewake.edge.log.tables.sidecar import SIDECAR_NAME
from tests.edge.helpers import Sent, opened, put, reading
from tests.services import PATIENCE_S, wait_until

pytestmark = pytest.mark.usefixtures("short_waits")


class Damage:
    """The failpoint: the disk says once that the file is malformed; the writer may then be held
    before it tries again.
    """

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self.before = before
        self.armed = self.hit = False
        self.go_on, self.held = threading.Event(), threading.Event()
        self.go_on.set()

    def __call__(self, place: str) -> None:
        if place == "received" and self.armed and not self.hit:
            self.before()
        if place == "inserted" and self.armed and not self.hit:
            self.hit = True
            raise sqlite3.DatabaseError("malformed")
        if place == "received" and self.hit and not self.go_on.is_set():
            self.held.set()
            self.go_on.wait(2 * PATIENCE_S)


def doubled(items: Sequence[object]) -> list[tuple[int, dict[str, object]]]:
    """What a consumer makes of what it reads."""
    found = [each for item in items if isinstance(item, Received) for each in item.readings]
    return [(t, {"n": fields["n"], "double": 2 * fields["n"]}) for t, fields in found]  # type: ignore[operator]


def step(consumer: Consumer, state: int) -> int:
    """Read, derive and commit what there is; the state after it."""
    chunk = consumer.poll()
    made = doubled(chunk.items)
    if made:
        consumer.submit(
            chunk.cursor,
            state=b"%d" % (state + len(made)),
            derived={"double": made},
            is_awaited=True,
        )
    return state + len(made)


def derived(events: EventLog) -> list[object]:
    """Of the stream that is made, all that the log holds."""
    look = events.open_consumer("look", ["double"])
    return [
        fields["n"]
        for item in look.poll().items
        if isinstance(item, Received)
        for _, fields in item.readings
    ]


@pytest.mark.parametrize("queued", [False, True], ids=["in the turn that fails", "and behind it"])
def test_what_a_consumer_had_committed_when_the_log_turned_out_damaged_is_derived_once(
    tmp_path: Path, queued: bool
) -> None:
    """The commit is done again in the new log.

    A consumer that began before it would make all of it a second time.
    """
    damage = Damage()
    with opened(tmp_path, failpoint=damage) as events:
        put(events, range(1, 6))
        consumer, state = events.open_consumer("double", ["speed"]), 0
        damage.armed, damage.go_on = True, threading.Event()
        state = step(consumer, state)
        assert damage.held.wait(PATIENCE_S)
        assert damage.hit, "the fault did not fire"
        with pytest.raises(LogRenewedError):
            consumer.poll()
        assert (consumer.cursor, consumer.state) == ({"speed": 5}, b"5")
        if queued:
            events.stream("speed").append_all([reading(n) for n in range(6, 9)])
        damage.go_on.set()

        def all_of_it() -> bool:
            nonlocal state
            state = step(consumer, state)
            return state == (8 if queued else 5) and not events._writer.store.is_salvaging

        wait_until(all_of_it, "it goes on")
        wait_until(lambda: events._writer.store.last("double") == state, "all is derived")
        assert derived(events) == list(range(1, 9 if queued else 6))


def test_a_commit_that_still_waits_for_company_counts_too(tmp_path: Path) -> None:
    damage = Damage()
    with opened(tmp_path, failpoint=damage) as events:
        put(events, range(1, 6))
        consumer = events.open_consumer("double", ["speed"])
        damage.armed, damage.go_on = True, threading.Event()
        events.stream("speed").append(reading(6))
        assert damage.held.wait(PATIENCE_S)
        consumer._renewed = False  # it commits just before it is told
        consumer._tails["speed"].clear()
        consumer._cursor["speed"] = 4
        late = consumer.submit({"speed": 4}, state=b"four")
        consumer.renew()
        with pytest.raises(LogRenewedError):
            consumer.poll()
        assert (consumer.cursor, consumer.state) == ({"speed": 4}, b"four")
        damage.go_on.set()
        late.result(PATIENCE_S)
        kept = events._writer.store.consumer("double")
        assert kept is not None
        assert (kept.cursor, kept.state) == ({"speed": 4}, b"four")


def test_a_consumer_that_the_new_log_was_not_told_of_registers_again_and_what_it_commits_is_kept(
    tmp_path: Path,
) -> None:
    """The sidecar is gone and the table of consumers too.

    Its commits would be passed over from then on, and done again at each start.
    """

    def forget() -> None:
        (tmp_path / SIDECAR_NAME).unlink()
        with closing(sqlite3.connect(tmp_path / LOG_NAME)) as db, db:
            db.execute("DELETE FROM consumers")

    damage = Damage(forget)
    with opened(tmp_path, failpoint=damage) as events:
        put(events, range(1, 6))
        consumer = events.open_consumer("double", ["speed"])
        damage.armed = True
        put(events, range(6, 9))
        assert damage.hit, "the fault did not fire"
        with pytest.raises(LogRenewedError):
            consumer.poll()
        assert (consumer.cursor, consumer.state) == ({"speed": 0}, None)
        wait_until(lambda: not events._writer.store.is_salvaging, "saved")
        wait_until(lambda: "double" in events.consumers(), "it is known again")
        wait_until(lambda: consumer.poll().cursor == {"speed": 8}, "all is read")
        consumer.submit({"speed": 8}, state=b"eight", is_awaited=True).result(PATIENCE_S)
    with opened(tmp_path) as events:
        again = events.open_consumer("double", ["speed"])
        assert (again.cursor, again.state) == ({"speed": 8}, b"eight")


def test_a_consumer_of_two_streams_of_which_only_one_was_told_reads_both(tmp_path: Path) -> None:
    """The sidecar's line of the second registration was lost, and the table with it."""
    before = bytearray()

    def forget() -> None:
        (tmp_path / SIDECAR_NAME).write_bytes(before)
        with closing(sqlite3.connect(tmp_path / LOG_NAME)) as db, db:
            db.execute("UPDATE consumers SET crc = 0")

    damage = Damage(forget)
    with opened(tmp_path, failpoint=damage) as events:
        put(events, range(1, 4))
        put(events, range(1, 4), stream="street")
        events.open_consumer("both", ["speed"])
        before += (tmp_path / SIDECAR_NAME).read_bytes()
        both = events.open_consumer("both", ["speed", "street"])
        damage.armed = True
        put(events, range(4, 6))
        assert damage.hit, "the fault did not fire"
        with pytest.raises(LogRenewedError):
            both.poll()
        wait_until(lambda: not events._writer.store.is_salvaging, "saved")
        wait_until(lambda: both.poll().cursor == {"speed": 5, "street": 3}, "both are read")


# the cloud


@pytest.mark.parametrize(
    "key",
    [
        FrameKey("nobody", 1, 1),
        FrameKey("speed", 1, 1),
        FrameKey("speed", 0, -1),
        FrameKey("", 2**62, 2**62),
    ],
)
def test_an_acknowledgement_of_a_frame_that_nobody_knows_is_passed_over(
    tmp_path: Path, key: FrameKey
) -> None:
    """It was taken for damage of the file: a sound log was set aside, and the next one too, until
    the oldest was deleted.
    """
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:
        put(events, range(1, 4))
        epoch = events.epoch
        events.free(key)
        put(events, range(4, 6))
        events.start_sending()
        wait_until(
            lambda: sent.acknowledge(events) or not events.status().backlog_readings, "all is sent"
        )
        assert events.epoch == epoch
    assert sent.ns() == [1, 2, 3, 4, 5]
    assert not list(tmp_path.glob("*.damaged-*"))


def test_what_is_acknowledged_twice_is_freed_once(tmp_path: Path) -> None:
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:
        put(events, range(1, 21))
        events.start_sending()
        sent.until(2)
        for _ in range(2):
            events.free(sent[0].key)
        put(events, range(21, 22))
        wait_until(lambda: events.status().backlog_readings == 11, "one frame is freed")
        assert events._writer.store.stored_bytes > 0


def test_a_frame_of_the_log_before_is_freed_in_the_new_one_that_was_told_of_it(
    tmp_path: Path,
) -> None:
    damage, sent = Damage(), Sent()
    with opened(tmp_path, sent=sent, failpoint=damage) as events:
        put(events, range(1, 21))
        events.start_sending()
        sent.until(2)
        damage.armed = True
        put(events, range(21, 22))
        assert damage.hit, "the fault did not fire"
        for out in sent[:2]:
            events.free(out.key)
        wait_until(lambda: 21 in sent.ns(), "the newest comes")
        wait_until(
            lambda: sent.acknowledge(events) or not events.status().backlog_readings,
            "nothing waits",
        )
    assert sorted(set(sent.ns())) == list(range(1, 22))  # type: ignore[type-var]
