"""Rows that hold what the log never wrote, as a flipped bit in a record's head makes them: the
agent starts, and the commands answer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from edgewake.edge import status
from edgewake.edge.downlink.requests import kept_in
from edgewake.edge.log.consumer import Consumer, LogRenewedError
from edgewake.edge.log.damage import audit
from edgewake.edge.log.event_log import Commit
from edgewake.edge.log.state import LogState
from edgewake.edge.log.tables import view
from edgewake.edge.log.tables.schema import LOG_NAME
from edgewake.edge.log.tables.sidecar import SIDECAR_NAME
from edgewake.protocol.errors import LocalError
from tests.edge.helpers import Sent, opened, put, reading
from tests.services import wait_until

DAMAGE = {
    "count of a batch": "UPDATE batches SET count = 'x'",
    "body of a batch": "UPDATE batches SET body = x'00'",
    "body as text": "UPDATE batches SET body = 'text'",
    "commit of a batch": "UPDATE batches SET commit_number = 'x'",
    "acceptance of a batch": "UPDATE batches SET accepted_at = x'ff'",
    "name of a stream": "UPDATE streams SET name = x'ff' WHERE id = 1",
    "last of a stream": "UPDATE streams SET last = 'x'",
    "epochs of a stream": "UPDATE streams SET older = '[[1]]'",
    "no streams": "DELETE FROM streams",
    "epoch": "UPDATE meta SET value = 'x' WHERE name = 'epoch'",
    "all of meta": "UPDATE meta SET value = x'00'",
    "no meta": "DELETE FROM meta",
    "cursor": "UPDATE consumers SET cursor = 'x'",
    "counters": "UPDATE counters SET value = 'x'",
    "gap": "INSERT INTO gaps VALUES (1, 1, 1, 'x', 1)",
    "gap as text": "INSERT INTO gaps VALUES ('x', 'y', 'z', x'00', 'v')",
    "position": "UPDATE sources SET position = x'00'",
    "name of a source": "INSERT INTO sources VALUES (x'01', 'p')",
    "clock": "UPDATE clocks SET offset_ms = 'x'",
    "boot": "UPDATE clocks SET boot = x'00'",
    "boundary": "INSERT INTO frames VALUES (1, 'x', 1, 1, 1, 1, NULL, 1, 1, 1, NULL)",
    "table": "DROP TABLE frames",
    "position of a batch as text": "UPDATE batches SET first = 'x' WHERE first = 11",
    "position of a batch far ahead": "UPDATE batches SET first = first + 4611686018427387904",
    "position of a batch below all": "UPDATE batches SET first = first - 4611686018427387904",
    "count below zero": "UPDATE batches SET count = -5",
    "count beyond all": "UPDATE batches SET count = 4611686018427387904",
    "checksum": "UPDATE batches SET crc = 'x'",
}
UNSEEN = {
    "commit of a batch",
    "acceptance of a batch",
    "no meta",
    "position",
    "name of a source",
    "clock",
    "boot",
}
"""What no checksum covers."""


def log_with(directory: Path, damage: str) -> None:
    """A log of two streams, a source and a consumer, and then the damage."""
    with opened(directory) as events:
        put(events, range(20))
        events.append(Commit({"other": [reading(1)]}, {"file": "17"})).result()
        events.open_consumer("one", ["speed"])
    with closing(sqlite3.connect(directory / LOG_NAME)) as db, db:
        db.executescript(damage)


COMMANDS: dict[str, Callable[[Path], object]] = {
    "status": lambda directory: status.table(status.read(directory, now_ms=1)),
    "show": lambda directory: list(view.rows(directory, 100)),
    "export": lambda directory: list(map(audit.as_line, audit.export(directory))),
    "stats": lambda directory: list(map(audit.as_line, audit.stats(directory))),
    "latest": lambda directory: audit.latest(directory),
    "requests": lambda directory: kept_in(directory).entries,
}


@pytest.mark.parametrize("what", DAMAGE)
def test_every_command_answers_or_says_what_is_wrong_and_verify_finds_it(
    tmp_path: Path, what: str
) -> None:
    log_with(tmp_path, DAMAGE[what])
    for command in COMMANDS.values():
        with suppress(LocalError):
            command(tmp_path)
    verdict = audit.verify(tmp_path)
    assert (verdict.fault_count > 0) == (what not in UNSEEN), verdict


@pytest.mark.parametrize("what", sorted(DAMAGE.keys() - {"no streams"}))
def test_a_consumer_is_given_every_position_or_told_that_it_is_missing_and_the_log_lives(
    tmp_path: Path, what: str
) -> None:
    log_with(tmp_path, DAMAGE[what])
    with opened(tmp_path) as events:
        old = events.open_consumer("one", ["speed"])
        new = events.open_consumer("two", ["speed"])
        put(events, range(100, 105))
        for reader in (old, new):
            heard: list[int] = []

            def all_is_heard(reader: Consumer = reader, heard: list[int] = heard) -> bool:
                with suppress(LogRenewedError):
                    for item in reader.poll().items:
                        heard.extend(range(item.first, item.last + 1))
                return reader.cursor["speed"] >= 25

            wait_until(all_is_heard, "all of it")
            assert heard[-5:] == [21, 22, 23, 24, 25]
            assert heard == sorted(set(heard)), "each once, in order"
            assert heard == list(range(heard[0], 26)), "without a hole"
        assert events.state is not LogState.CLOSED


def test_a_sound_log_has_no_faults(tmp_path: Path) -> None:
    log_with(tmp_path, "")
    assert audit.verify(tmp_path) == audit.Verdict(batches=3, readings=21)
    assert len(COMMANDS["export"](tmp_path)) == 21  # type: ignore[arg-type]


def test_what_cannot_be_read_is_shown_as_damaged_and_the_rest_as_it_is(tmp_path: Path) -> None:
    log_with(tmp_path, "UPDATE batches SET body = x'00' WHERE stream = 1")
    *bad, good = view.rows(tmp_path, 100)
    assert len(bad) == 2
    assert all('"damaged":"' in row for row in bad)
    assert '"fields":{"n":[1]}' in good


@pytest.mark.parametrize("what", DAMAGE)
def test_the_log_opens_takes_readings_and_sends_them_twice_over(tmp_path: Path, what: str) -> None:
    log_with(tmp_path, DAMAGE[what])
    for life in range(2):
        mine = [100 * (life + 1) + place for place in range(5)]
        sent = Sent()
        with opened(tmp_path, sent=sent) as events:
            events.start_sending()
            put(events, range(mine[0], mine[-1] + 1), stream="new")
            wait_until(lambda: [n for n in sent.ns() if n in mine] == mine, "what came now")  # noqa: B023


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE sources SET position = '71'",
        "UPDATE sources SET position = x'00'",
        "DELETE FROM sources",
    ],
)
def test_a_sources_position_that_was_damaged_is_the_sidecars(tmp_path: Path, damage: str) -> None:
    log_with(tmp_path, damage)
    for _ in range(2):
        with opened(tmp_path) as events:
            assert events.position("file") == "17"
    with closing(sqlite3.connect(tmp_path / LOG_NAME)) as db:
        assert db.execute("SELECT name, position FROM sources").fetchall() == [("file", "17")]


def test_a_position_that_is_newer_than_the_sidecar_is_the_logs(tmp_path: Path) -> None:
    with opened(tmp_path) as events:
        events.append(Commit({"speed": [reading(1)]}, {"file": "17"})).result()
    before = (tmp_path / SIDECAR_NAME).read_bytes()
    with opened(tmp_path) as events:
        events.append(Commit({"speed": [reading(2)]}, {"file": "18"})).result()
    (tmp_path / SIDECAR_NAME).write_bytes(before)  # a crash of the machine left it behind
    with opened(tmp_path) as events:
        assert events.position("file") == "18"
