"""What a full log gives up when its rows are damaged: exactly what stood there, whatever a damaged
row says of itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.keeping.quota import AtQuota, LaneQuota
from edgewake.edge.log.keeping.work import FrameKey, Limits, OutFrame, Work
from edgewake.edge.log.store import LogStore
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.tables.consumers import Missed, RawBatch
from edgewake.edge.log.tables.schema import LOG_NAME, LogDamagedError
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.frames.frame_bytes import read
from tests.edge.helpers import reading

BATCHES, IN_A_BATCH = 12, 10
POSITIONS = range(1, BATCHES * IN_A_BATCH + 1)


def store(
    directory: Path, quota: int = 1 << 20, *, policy: AtQuota = AtQuota.DROP_OLDEST, **limits: int
) -> LogStore:
    """A log without a writer: everything happens at once."""
    found = Limits(
        quota_bytes=1 << 20, readings_max=IN_A_BATCH, bytes_max=100_000, window_frames=100,
        window_bytes=1 << 20,
        lane_quotas={Lane.NORMAL: LaneQuota(size=quota, policy=policy)},
    )  # fmt: skip
    return LogStore(
        directory,
        replace(found, **limits),
        FakeClock(),
        boot="boot",
        new_epoch=lambda previous, _now: previous + 1,
    )


def batch(number: int) -> list[Reading]:
    """One, counted from 0; what is in it tells its position."""
    return [reading(number * IN_A_BATCH + place + 1) for place in range(IN_A_BATCH)]


@pytest.fixture
def filled(tmp_path: Path) -> tuple[Path, int]:
    """A directory with a log of twelve batches, each a commit, and what they count for."""
    log = store(tmp_path)
    for number in range(BATCHES):
        log.apply(Work(readings={"speed": batch(number)}))
    size = log.stored_bytes
    log.close()
    return tmp_path, size


def damage(directory: Path, statement: str) -> None:
    with closing(sqlite3.connect(directory / LOG_NAME)) as db, db:
        assert db.execute(statement).rowcount > 0, "the fault did not fire"


def sent(log: LogStore) -> tuple[list[object], dict[str, int]]:
    """Everything is framed and acknowledged: the readings, and by reason what the cloud is told is
    lost.
    """
    arrived: list[object] = []
    said: dict[str, int] = {}
    freed: list[tuple[FrameKey, None]] = []
    while log.can_frame() or freed:
        frames: list[OutFrame] = list(log.apply(Work(freed=freed, sending=True)).frames)
        for out in frames:
            frame = read(out.payload)
            arrived += frame.fields.get("n", ())
            if frame.gap:
                said[frame.gap.reason] = said.get(frame.gap.reason, 0) + frame.gap.count
        freed = [(out.key, None) for out in frames]
    return arrived, said


COUNTS = {
    "far beyond its end": "UPDATE batches SET count = 42 WHERE first = 1",
    "beyond all": "UPDATE batches SET count = 4611686018427387904 WHERE first = 1",
    "less than it had": "UPDATE batches SET count = 2 WHERE first = 1",
    "nothing": "UPDATE batches SET count = 0 WHERE first = 1",
    "below zero": "UPDATE batches SET count = -5 WHERE first = 1",
}


@pytest.mark.parametrize("policy", [AtQuota.DROP_OLDEST, AtQuota.THIN_OUT])
@pytest.mark.parametrize("what", COUNTS)
def test_a_batch_that_says_a_wrong_count_takes_no_other_with_it(
    filled: tuple[Path, int], what: str, policy: AtQuota
) -> None:
    """One flipped bit of a count cost forty readings that were sound; a count of 0 kept the writer
    thinning out for ever.
    """
    directory, size = filled
    damage(directory, COUNTS[what])
    log = store(directory, size - 1, policy=policy)
    log.apply(Work(positions={"turn": "1"}))
    arrived, said = sent(log)
    assert sum(said.values()) + len(arrived) == len(POSITIONS)
    assert said.get("corrupt", 0) == IN_A_BATCH
    assert len(arrived) >= len(POSITIONS) - 2 * IN_A_BATCH
    assert arrived == sorted(set(arrived))  # type: ignore[type-var]
    log.close()


@pytest.mark.parametrize("what", COUNTS)
def test_what_only_a_consumer_needs_is_counted_by_its_place_too(tmp_path: Path, what: str) -> None:
    log = store(tmp_path)
    log.register("slow", ["speed"], at_end=False)
    for number in range(BATCHES):
        log.apply(Work(readings={"speed": batch(number)}))
    assert sent(log)[0] == list(POSITIONS)
    size = log.stored_bytes
    log.close()
    damage(tmp_path, COUNTS[what])
    log = store(tmp_path, consumer_bytes=size - 1)
    log.apply(Work(positions={"turn": "1"}))
    found, at = log.read("speed", 0, readings_max=10_000, bytes_max=1 << 20)
    missed = [one for one in found if isinstance(one, Missed)]
    held = [
        fields["n"]
        for one in found
        if isinstance(one, RawBatch)
        for _, fields in one.received().readings
    ]
    assert at == POSITIONS[-1]
    assert sum(one.count for one in missed) + len(held) == len(POSITIONS)
    assert sum(one.count for one in missed if one.reason == "corrupt") == IN_A_BATCH
    assert len(held) >= len(POSITIONS) - 2 * IN_A_BATCH
    log.close()


def test_what_is_sound_is_given_up_as_before_with_its_count(filled: tuple[Path, int]) -> None:
    """The control."""
    directory, size = filled
    log = store(directory, size - 1)
    assert log.apply(Work(positions={"turn": "1"})).dropped == IN_A_BATCH
    arrived, said = sent(log)
    assert said == {"quota": IN_A_BATCH}
    assert arrived == list(POSITIONS[IN_A_BATCH:])
    log.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE batches SET accepted_at = 0 WHERE first = 1",
        "UPDATE batches SET commit_number = 9223372036854775807 WHERE first = 1",
        "UPDATE batches SET crc = 0 WHERE first = 31",
        "UPDATE batches SET body = x'7b7d' WHERE first = 31",
        "DELETE FROM batches WHERE first = 31",
    ],
)
def test_a_log_at_its_bound_says_of_every_position_what_became_of_it(
    filled: tuple[Path, int], statement: str
) -> None:
    directory, size = filled
    damage(directory, statement)
    log = store(directory, size // 2)
    log.apply(Work(positions={"turn": "1"}))
    arrived, said = sent(log)
    assert len(arrived) + sum(said.values()) == len(POSITIONS)
    assert set(arrived) <= set(POSITIONS)
    log.close()


@pytest.mark.parametrize(
    "drop", [lambda log: log._rows.take_out(1, 999), lambda log: log._rows.take_out(99, 1)]
)
def test_of_what_is_not_there_nothing_is_taken_out(
    filled: tuple[Path, int], drop: Callable[[LogStore], int]
) -> None:
    log = store(filled[0])
    assert drop(log) == 0
    assert sent(log)[0] == list(POSITIONS)
    log.close()


@pytest.mark.parametrize(
    "change",
    [
        "seq = seq + 1",
        "first = first + 1",
        "count = count + 1",
        "gap = 'quota'",
        "epoch = epoch + 1",
        "crc = 0",
    ],
)
def test_a_boundary_that_nobody_wrote_is_damage(filled: tuple[Path, int], change: str) -> None:
    """Sent again, the frame would have other readings under its number."""
    log = store(filled[0])
    log.apply(Work(sending=True))
    log.close()
    damage(filled[0], f"UPDATE frames SET {change} WHERE frame = 2")
    with pytest.raises(LogDamagedError):
        store(filled[0])
