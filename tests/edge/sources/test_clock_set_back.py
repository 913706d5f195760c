"""Files that rotate while the agent is away and the machine's clock is set, back or forth: every
line is taken once.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.edge.sources.lines.follower import FilePositions
from edgewake.edge.sources.lines.rotation import KNOWN_MAX, LastLook, Seen
from tests.edge.sources.lines.test_follower import Watch, add
from tests.edge.sources.lines.test_rotation_copies import changed_at
from tests.examples import examples

HOUR_S = 3600.0
NOW_S = 1_790_000_000.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "in.log"


def rotate(path: Path) -> None:
    """`in.log` becomes in.log.1, which becomes in.log.2, and so on."""
    for number in range(40, 0, -1):
        older = path.with_name(f"in.log.{number}")
        if older.exists():
            older.rename(path.with_name(f"in.log.{number + 1}"))
    path.rename(path.with_name("in.log.1"))


def week_of_old_files(path: Path) -> None:
    for number in range(3, 7):
        add(path.with_name(f"in.log.{number}"), b"long ago %d" % number)
        changed_at(path.with_name(f"in.log.{number}"), NOW_S - number * 24 * HOUR_S)


@pytest.mark.parametrize(
    "jump_s",
    [-HOUR_S, -60.0, 0.0, HOUR_S],
    ids=["an hour back", "a minute back", "not at all", "an hour on"],
)
def test_two_rotations_while_nobody_looks_lose_no_line_though_the_clock_was_set(
    path: Path, jump_s: float
) -> None:
    """The first file is known by its number; the second one came and went while nobody looked, and
    only its time tells of it.
    """
    week_of_old_files(path)
    add(path, b"one")
    changed_at(path, NOW_S)
    watch = Watch(path)
    assert watch.read() == [b"one"]
    watch.follower.close()
    add(path, b"two")
    changed_at(path, NOW_S + jump_s + 1)
    rotate(path)
    add(path, b"three")
    changed_at(path, NOW_S + jump_s + 2)
    rotate(path)
    add(path, b"four")
    changed_at(path, NOW_S + jump_s + 3)
    watch = watch.again()
    assert sorted(watch.read()) == [b"four", b"three", b"two"]
    assert watch.again().read() == [], "and nothing of before comes again"


def test_a_file_whose_time_lies_in_the_future_hides_none_that_comes_after_it(path: Path) -> None:
    """Written before the clock was set right."""
    week_of_old_files(path)
    add(path, b"one")
    changed_at(path, NOW_S + 365 * 24 * HOUR_S)
    watch = Watch(path)
    assert watch.read() == [b"one"]
    watch.follower.close()
    for text in (b"two", b"three"):
        rotate(path)
        add(path, text)
        changed_at(path, NOW_S)
    assert watch.again().read() == [b"two", b"three"]


def test_a_place_that_says_nothing_of_other_files_goes_by_the_times_alone(
    path: Path,
) -> None:
    week_of_old_files(path)
    add(path, b"one")
    changed_at(path, NOW_S)
    watch = Watch(path)
    watch.read()
    watch.follower.close()
    assert watch.position is not None
    earlier = FilePositions(watch.position.since_ns, watch.position.files)
    assert b"foreign_ns" not in earlier.encode().encode()
    rotate(path)
    add(path, b"two")
    again = Watch(path, position=FilePositions.decode(earlier.encode()))
    assert again.read() == [b"two"]
    assert again.position is not None
    assert again.position.foreign_ns == int((NOW_S - 3 * 24 * HOUR_S) * 1e9)


def test_files_that_are_forgotten_because_there_are_so_many_are_not_read_again(path: Path) -> None:
    """Also where all of them changed later than what was foreign before."""
    watch = Watch(path)
    for number in range(KNOWN_MAX + 5):
        add(path, b"%d" % number)
        changed_at(path, NOW_S + number)
        watch.read()
        rotate(path)
        watch.read(30)
    add(path, b"last")
    assert watch.read() == [b"last"]
    for _ in range(2):
        watch = watch.again()
        assert watch.read() == []


def seen(name: str, mtime_ns: int) -> Seen:
    return Seen(name, 1, 1, 1, mtime_ns)


@pytest.mark.parametrize(
    ("foreign_ns", "current_ns", "mtime_ns", "before"),
    [
        (5, 10, 9, True), (5, 10, 10, False), (5, None, 9, True), (None, 3, 9, True),
        (None, 3, 10, False),
        (5, 9, 9, False), (5, 9, 6, False), (5, 9, 5, True), (20, 9, 15, True),
    ],
    ids=[
        "the time tells", "just then", "no current file", "not known",
        "not known, just then",
        "set back", "set back, later", "set back, just then", "set back, before what was foreign",
    ],
)  # fmt: skip
def test_with_the_clock_set_back_own_files_changed_no_later_than_foreign_ones(
    foreign_ns: int | None, current_ns: int | None, mtime_ns: int, before: bool
) -> None:
    current = None if current_ns is None else seen("in.log", current_ns)
    assert LastLook(10, foreign_ns).was_before(seen("in.log.1", mtime_ns), current) is before


@settings(max_examples=examples(40))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["write", "rotate", "read", "restart"]), st.integers(-4000, 4000)
        ),
        max_size=14,
    )
)
def test_whatever_the_clock_does_nothing_is_read_twice_and_what_is_known_is_never_lost(
    steps: list[tuple[str, int]],
) -> None:
    """Each step sets the clock.

    Files that came and went between two looks may have any time: of these no line is taken twice.
    """

    directory = Path(tempfile.mkdtemp())
    try:
        path = directory / "in.log"
        path.touch()
        watch, written = Watch(path), 0
        watch.read()
        watch.position = watch.follower.position()  # is kept at once, also without lines
        taken: list[bytes] = []
        for step, clock_s in steps:
            seen_s = NOW_S + clock_s
            if step == "write":
                add(
                    path,
                    b"line %d, long enough to tell it from any other line of any other file"
                    % written,
                )
                written += 1
                changed_at(path, seen_s)
            elif step == "rotate":
                rotate(path)
                path.touch()
                changed_at(path, seen_s)
            elif step == "read":
                taken += watch.read()
            else:
                watch = watch.again()
        taken += watch.read()
        watch.follower.close()
        numbers = [int(line.split(b",")[0].split()[1]) for line in taken]
        assert len(set(numbers)) == len(numbers), "twice"
        if [step for step, _ in steps].count("rotate") <= 1:
            assert sorted(numbers) == list(range(written))
    finally:
        shutil.rmtree(directory)
