"""A disk that is full and stays so: what is here is sent and deleted in the reserve's space, and
that makes room again.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.event_log import EventLog, LogBusyError
from edgewake.edge.log.state import LogState
from edgewake.edge.log.tables.schema import CHECKPOINT_BYTES
from edgewake.edge.uplink.config import UplinkConfig
from tests.edge.helpers import Sent, opened, reading
from tests.services import PATIENCE_S, wait_until

DISK = "size=14m"
QUEUE_BYTES = 1 << 20
RESERVE_BYTES = CHECKPOINT_BYTES + QUEUE_BYTES
"""As the defaults have it: the write-ahead log, and one commit more."""
TRIES = 5
"""Turns of the writer's on the full disk after which the control is believed."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", DISK, "tmpfs", place], capture_output=True
    ).returncode:
        pytest.skip("mounting a small file system is not allowed here")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


@contextlib.contextmanager
def filled(
    disk: Path, reserve_bytes: int, sent: Sent, failpoint: Callable[[str], None]
) -> Iterator[tuple[EventLog, int]]:
    """A log that has filled its disk, with what is accepted and what waits for room; how many were
    left in it.
    """
    config = LogConfig(linger_ms=0, reserve_bytes=reserve_bytes, queue_bytes_max=QUEUE_BYTES)
    with opened(
        disk / "log", sent=sent, config=config, uplink=UplinkConfig(), failpoint=failpoint
    ) as events:
        log, ticket = events.stream("speed"), 0
        while events.state is not LogState.FULL:
            try:
                ticket = log.append(reading(ticket, text="x" * 5_000))
            except LogBusyError:
                log.wait_for_room(timeout_s=0.2)
        assert 0 < log.accepted_through < ticket, "the fault did not fire"
        yield events, ticket


@pytest.mark.parametrize("hurries", [False, True])
def test_what_is_sent_makes_room_on_a_disk_that_stays_full(
    disk: Path, hurries: bool, request: pytest.FixtureRequest
) -> None:
    """Also where a writer in a hurry has moved more of the write-ahead log into the file: deleting
    frees nothing of the disk then.
    """
    if hurries:
        request.getfixturevalue("short_waits")
    sent = Sent()
    with filled(disk, RESERVE_BYTES, sent, lambda _place: None) as (events, ticket):
        log = events.stream("speed")
        events.start_sending()
        wait_until(
            lambda: sent.acknowledge(events) or log.accepted_through == ticket,
            "what waited has room",
        )
        wait_until(
            lambda: sent.acknowledge(events) or not events.status().backlog_readings, "all is sent"
        )
        assert log.wait_accepted(log.append(reading(ticket)), timeout_s=PATIENCE_S), (
            "it accepts again"
        )
    assert sent.ns()[:ticket] == list(range(ticket))


@pytest.mark.long
def test_control_without_a_reserve_nothing_can_be_sent_nor_deleted(disk: Path) -> None:
    sent, passed = Sent(), Counter[str]()
    with filled(disk, 0, sent, lambda place: passed.update([place])) as (events, ticket):
        accepted, before = events.stream("speed").accepted_through, passed["received"]
        events.start_sending()
        wait_until(lambda: passed["received"] >= before + TRIES, "it has tried")
        assert (events.state, len(sent), events.stream("speed").accepted_through) == (
            LogState.FULL,
            0,
            accepted,
        )
        (disk / "log" / "reserve").unlink(missing_ok=True)
        subprocess.run(["mount", "-o", "remount,size=20m", disk], check=True)
        wait_until(
            lambda: sent.acknowledge(events) or events.stream("speed").accepted_through == ticket,
            "a larger disk",
        )


def test_the_default_reserve_has_room_for_what_it_must_hold() -> None:
    config = LogConfig()
    assert config.reserve_bytes >= CHECKPOINT_BYTES + config.queue_bytes_max
