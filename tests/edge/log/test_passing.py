"""How consumers move on: a cursor never goes back, two commits in one are what two would be, and
chunks have neither holes nor doubles.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.edge.log.tables.codec import batches, checksum
from edgewake.edge.log.tables.consumers import ConsumerState, Missed, Passed, RawBatch, rows_after
from edgewake.edge.log.tables.schema import LogDamagedError, open_in_memory
from edgewake.edge.log.tables.streams import StreamState
from edgewake.edge.log.tables.tables import read_consumers, write_consumer
from tests.edge.helpers import reading
from tests.examples import examples

CURSORS = st.dictionaries(
    st.sampled_from(["speed", "street", "nobody's"]), st.integers(0, 20), max_size=3
)
PASSED = st.builds(Passed, CURSORS, st.none() | st.binary(max_size=3), st.integers(0, 5))
KNOWN = st.builds(
    ConsumerState,
    st.just("mean"),
    st.fixed_dictionaries({"speed": st.integers(0, 20), "street": st.integers(0, 20)}),
)


@given(KNOWN, PASSED, PASSED)
def test_two_commits_in_one_are_what_they_are_one_after_the_other(
    known: ConsumerState, first: Passed, later: Passed
) -> None:
    """Of two that came out of order the merged one stood behind, and what was between was read
    twice after a crash.
    """
    assert known.moved(first.then(later), 7) == known.moved(first, 6).moved(later, 7)


@given(KNOWN, PASSED)
def test_a_cursor_never_goes_back_and_knows_its_streams_only(
    known: ConsumerState, passed: Passed
) -> None:
    after = known.moved(passed, 3)
    assert after.cursor.keys() == known.cursor.keys()
    assert all(
        after.cursor[stream] == max(at, passed.cursor.get(stream, 0))
        for stream, at in known.cursor.items()
    )
    assert (after.commit, after.missed) == (3, known.missed + passed.missed)
    assert after.state == (known.state if passed.state is None else passed.state)


@pytest.mark.parametrize("state", [None, b"", b"\x00", b"x" * 10_000])
def test_a_row_comes_back_as_it_was_written(state: bytes | None) -> None:
    db = open_in_memory()
    consumer = ConsumerState("mean", {"street": 2, "speed": 1}, 3, 4, state)
    write_consumer(db, consumer)
    assert read_consumers(db) == [consumer]
    write_consumer(db, consumer.moved(Passed({"speed": 9}), 5))
    assert [one.cursor["speed"] for one in read_consumers(db)] == [9], (
        "in the place of the one before"
    )
    db.close()


@pytest.mark.parametrize(
    "change",
    ["name = 'other'", "cursor = '{}'", "cursor = '7'", "cursor = '{'", "cursor = x'ff'",
        "missed = 9", "commit_number = 9", "crc = 0",
     "state = x'01'", "state = NULL", "state = 'text'", "missed = 'x'"],
)  # fmt: skip
def test_a_row_that_was_changed_is_damage(change: str) -> None:
    db = open_in_memory()
    write_consumer(db, ConsumerState("mean", {"speed": 1}, 3, 4, b"state"))
    db.execute(f"UPDATE consumers SET {change}")
    with pytest.raises(LogDamagedError):
        read_consumers(db)
    db.close()


def test_for_the_sidecar_it_is_all_but_its_state() -> None:
    consumer = ConsumerState("mean", {"speed": 1}, 3, 4, b"state")
    told = ConsumerState.from_json(orjson.loads(orjson.dumps(consumer.without_state())))
    assert told == ConsumerState("mean", {"speed": 1}, 3, 4)


# chunks


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    """Positions 1 to 100 in batches of ten."""
    found = open_in_memory()
    for first in range(1, 101, 10):
        (batch,) = batches(
            [reading(first + n) for n in range(10)], readings_max=10, bytes_max=10_000
        )
        crc = checksum(batch.body, 1, first, 10)
        found.execute("INSERT INTO batches VALUES (1, ?, 10, 1, 1, ?, ?)", (first, crc, batch.body))
    yield found
    found.close()


SPEED = StreamState(1, "speed", 100, 100)


def heard(found: list[RawBatch | Missed]) -> list[int | str]:
    """Positions, or why they are missing."""
    told: list[int | str] = []
    for one in found:
        if isinstance(one, Missed):
            told += [one.reason] * one.count
        else:
            part = one.received()
            assert [fields["n"] for _, fields in part.readings] == list(
                range(part.first, part.last + 1)
            )
            told += range(part.first, part.last + 1)
    return told


@pytest.mark.parametrize("after", [0, 1, 9, 10, 11, 55, 89, 90, 99])
@pytest.mark.parametrize("readings_max", [1, 9, 10, 11, 1_000])
def test_chunk_after_chunk_gives_every_position_once(
    db: sqlite3.Connection, after: int, readings_max: int
) -> None:
    told: list[int | str] = []
    at = after
    while at < 100:
        found, further = rows_after(db, SPEED, at, readings_max=readings_max, bytes_max=1 << 20)
        assert further > at
        told += heard(found)
        at = further
    assert (told, at) == (list(range(after + 1, 101)), 100)


@pytest.mark.parametrize(
    ("readings_max", "expected"),
    [(9, 10), (10, 10), (11, 20), (19, 20), (20, 20), (21, 30), (200, 100)],
)
def test_a_chunk_has_about_as_many_as_it_is_asked_for(
    db: sqlite3.Connection, readings_max: int, expected: int
) -> None:
    """Whole batches, and the last one too where it has more."""
    assert rows_after(db, SPEED, 0, readings_max=readings_max, bytes_max=1 << 20)[1] == expected


@pytest.mark.parametrize("bytes_max", [0, 1])
def test_a_chunk_has_at_least_one_batch_however_few_bytes_it_may_have(
    db: sqlite3.Connection, bytes_max: int
) -> None:
    assert rows_after(db, SPEED, 0, readings_max=1_000, bytes_max=bytes_max)[1] == 10


@pytest.mark.parametrize("after", [100, 101, 5_000])
def test_at_the_end_there_is_nothing_and_the_cursor_stays(
    db: sqlite3.Connection, after: int
) -> None:
    assert rows_after(db, SPEED, after, readings_max=10, bytes_max=100) == ([], after)


HARM = st.sampled_from(
    [
        "DELETE FROM batches",
        "UPDATE batches SET crc = 0",
        "UPDATE batches SET count = 3",
        "UPDATE batches SET count = 30",
    ]
)


@given(st.dictionaries(st.integers(0, 9), HARM, max_size=6), st.integers(0, 99), st.integers(1, 60))
@settings(max_examples=examples(40))
def test_whatever_is_damaged_each_position_is_there_once_or_said_to_be_missing(
    harm: dict[int, str], after: int, readings_max: int
) -> None:
    db = open_in_memory()
    for number in range(10):
        first = 1 + 10 * number
        (batch,) = batches(
            [reading(first + n) for n in range(10)], readings_max=10, bytes_max=10_000
        )
        db.execute(
            "INSERT INTO batches VALUES (1, ?, 10, 1, 1, ?, ?)",
            (first, checksum(batch.body, 1, first, 10), batch.body),
        )
        if number in harm:
            db.execute(f"{harm[number]} WHERE first = ?", (first,))
    told, at = list[int | str](), after
    while at < 100:
        found, at = rows_after(db, SPEED, at, readings_max=readings_max, bytes_max=1 << 20)
        told += heard(found)
    expected = [
        "corrupt" if (place - 1) // 10 in harm else place for place in range(after + 1, 101)
    ]
    assert told == expected
    db.close()
