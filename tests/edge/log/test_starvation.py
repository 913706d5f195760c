"""A reader that holds the write-ahead log: it cannot be emptied, and grows no further than its
bound. 0 lost, 0 twice.

`make test` takes a sample; `make test-faults` more rounds.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.state import LogState
from edgewake.edge.log.tables.schema import CHECKPOINT_BYTES, LOG_NAME
from edgewake.edge.uplink.config import UplinkConfig
from tests.edge.helpers import Sent, opened, reading
from tests.services import PATIENCE_S, wait_until

ROUNDS = 20 if os.environ.get("EDGEWAKE_FAULTS") == "all" else 2
WAL_BYTES_MAX = 4 << 20
KEPT_BYTES = 2 * CHECKPOINT_BYTES
"""A file up to this size keeps it, and is written from its beginning again."""
MUCH_BYTES = 12 << 20
"""The bound, and what one turn may take that began below it: a whole queue."""
READINGS_MAX = 100_000
"""Of one round, where nothing stops it."""


@contextlib.contextmanager
def held(directory: Path) -> Iterator[None]:
    """Somebody reads, and does not end."""
    with contextlib.closing(sqlite3.connect(directory / LOG_NAME, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM batches").fetchone()
        yield


def wal_bytes(directory: Path) -> int:
    return (directory / f"{LOG_NAME}-wal").stat().st_size


def starve(directory: Path, events: EventLog, numbers: Iterator[int]) -> int:
    """Append while the log is held, until it stops or has taken enough; the last ticket."""
    log, ticket, taken = events.stream("speed"), 0, 0
    while events.state is not LogState.WAITING and taken < READINGS_MAX:
        if log.wait_for_room(timeout_s=0.1):
            ticket = log.append_all(reading(next(numbers), text="x" * 100) for _ in range(1_000))
            taken += 1_000
    return ticket


def config(wal_bytes_max: int) -> LogConfig:
    return LogConfig(
        linger_ms=0, wal_bytes_max=wal_bytes_max, reserve_bytes=0, queue_readings_max=20_000
    )


def test_a_reader_that_holds_the_log_stops_intake_at_the_bound_and_loses_nothing(
    tmp_path: Path,
) -> None:
    sent, numbers = Sent(), iter(range(ROUNDS * (READINGS_MAX + 1_000)))
    with opened(tmp_path, sent=sent, config=config(WAL_BYTES_MAX), uplink=UplinkConfig()) as events:
        log = events.stream("speed")
        assert log.wait_accepted(log.append(reading(next(numbers))), timeout_s=PATIENCE_S)
        for _ in range(ROUNDS):
            with held(tmp_path):
                ticket = starve(tmp_path, events, numbers)
                wait_until(lambda: events.state is LogState.WAITING, "the log waits for the reader")
                assert WAL_BYTES_MAX <= wal_bytes(tmp_path) < MUCH_BYTES
            assert log.wait_accepted(ticket, timeout_s=PATIENCE_S)
            wait_until(
                lambda: events.state is LogState.GOOD and wal_bytes(tmp_path) <= KEPT_BYTES,
                "it goes on with a log of usual length",
            )
        events.start_sending()
        wait_until(
            lambda: sent.acknowledge(events) or not events.status().backlog_readings, "acknowledged"
        )
    assert sent.ns() == list(range(next(numbers)))


@pytest.mark.long
def test_control_without_a_bound_the_held_log_grows_on(tmp_path: Path) -> None:
    with opened(tmp_path, config=config(1 << 30), uplink=UplinkConfig()) as events:
        log = events.stream("speed")
        assert log.wait_accepted(log.append(reading(0)), timeout_s=PATIENCE_S)
        with held(tmp_path):
            assert log.wait_accepted(
                starve(tmp_path, events, iter(range(READINGS_MAX))), timeout_s=PATIENCE_S
            )
            assert events.state is LogState.GOOD
            assert wal_bytes(tmp_path) >= MUCH_BYTES
