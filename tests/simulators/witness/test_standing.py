"""The ledger that never ends: each anomaly in an otherwise clean run is counted, nothing else."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from edgewake.simulators.witness import standing as module
from edgewake.simulators.witness.standing import CLOSED_MAX, LOST_AFTER_MS, Row, Standing

T0 = 1_790_000_000_000
WINDOW_MS = 10_000


def begun() -> Standing:
    """One that begins a window before T0."""
    return Standing(window_ms=WINDOW_MS, late_ms=120_000, begin_ms=T0 - WINDOW_MS)


def put(standing: Standing, count: int = 4, device: str = "a") -> list[tuple[int, int, float]]:
    """Readings of one window: number, time, value."""
    given = []
    for i in range(count):
        t_ms, value = T0 + 1000 * i, i / 8
        given.append((standing.give(device, t_ms, value), t_ms, value))
    return given


def show(standing: Standing, given: list[tuple[int, int, float]], device: str = "a") -> None:
    for n, t_ms, value in given:
        standing.show(device, n, t_ms, value, now_ms=t_ms + 200)


def row(given: list[tuple[int, int, float]], revision: int = 1) -> Row:
    values = [value for _, _, value in given]
    return Row(revision, len(values), sum(values), min(values), max(values))


def counts(standing: Standing, now_ms: int = T0 + 5_000) -> tuple[int, int, int]:
    return standing.lost(now_ms), standing.twice, standing.wrong


def test_a_clean_run_has_nothing_wrong_and_is_forgotten() -> None:
    standing = begun()
    given = put(standing)
    assert standing.waiting == 4
    assert standing.oldest_ms(T0 + 5_000) == 5_000
    show(standing, given)
    standing.show_window("a", T0, row(given[:2]))
    standing.show_window("a", T0, row(given, revision=2))
    standing.make_final(T0 + WINDOW_MS)
    assert counts(standing) == (0, 0, 0)
    assert (standing.taken, standing.shown, standing.waiting, standing.windows) == (4, 4, 0, 1)


def test_what_is_shown_again_was_never_given_or_is_another_one_is_counted() -> None:
    standing = begun()
    given = put(standing)
    show(standing, given)
    show(standing, given[:1])
    assert counts(standing) == (0, 1, 0)
    standing.show("a", 99, T0, 0.0, now_ms=T0)
    assert counts(standing) == (0, 1, 1)
    (n, t_ms, value), *_ = put(standing, 1)
    standing.show("a", n, t_ms, value + 1, now_ms=t_ms)
    assert counts(standing) == (0, 1, 2)


def test_what_was_overtaken_is_lost_after_a_while_and_found_where_it_comes() -> None:
    standing = begun()
    first, *others = put(standing)
    show(standing, others)
    soon, later = T0 + 5_000, T0 + 5_000 + LOST_AFTER_MS
    assert counts(standing, soon) == (0, 0, 0)
    assert counts(standing, later) == (1, 0, 0)
    show(standing, [first])
    assert counts(standing, later) == (0, 0, 0)


def test_the_last_ones_of_a_device_wait_and_are_not_lost() -> None:
    standing = begun()
    put(standing)
    assert counts(standing, T0 + 10 * LOST_AFTER_MS) == (0, 0, 0)
    assert standing.waiting == 4


def test_windows_are_right_or_wrong_when_they_are_final() -> None:
    for said, wrong in ((0, 0), (1, 1), (None, 1)):
        standing = begun()
        given = put(standing)
        show(standing, given)
        if said is not None:
            standing.show_window("a", T0, row(given[said:]))
        standing.make_final(T0 + WINDOW_MS - 1)
        assert standing.windows + standing.wrong == 0, "nothing is final yet"
        standing.make_final(T0 + WINDOW_MS)
        assert (standing.windows, standing.wrong) == (1 - wrong, wrong)


def test_a_window_changes_never_after_it_is_final_and_no_revision_comes_twice_or_falls() -> None:
    standing = begun()
    given = put(standing)
    show(standing, given)
    standing.show_window("a", T0, row(given, revision=3))
    standing.show_window("a", T0, row(given, revision=3))
    assert counts(standing) == (0, 1, 0)
    standing.show_window("a", T0, row(given, revision=2))
    assert counts(standing) == (0, 1, 1)
    standing.make_final(T0 + WINDOW_MS)
    standing.show_window("a", T0, row(given, revision=4))
    assert counts(standing) == (0, 1, 2)
    standing.show_window("nobody", T0 + WINDOW_MS, row(given))
    standing.make_final(T0 + 2 * WINDOW_MS)
    assert counts(standing) == (0, 1, 3)


def test_a_window_whose_readings_came_too_late_for_the_query_is_not_judged() -> None:
    standing = begun()
    given = put(standing)
    standing.make_final(T0 + WINDOW_MS)
    assert (standing.late, standing.wrong) == (1, 0), "its readings are on their way"
    standing = begun()
    given = put(standing)
    for n, t_ms, value in given:
        standing.show("a", n, t_ms, value, now_ms=t_ms + 100_000)
    standing.make_final(T0 + WINDOW_MS)
    assert (standing.late, standing.wrong) == (1, 0)


def test_windows_of_before_the_beginning_are_nobodys() -> None:
    standing = begun()
    standing.show_window("a", T0 - 5 * WINDOW_MS, Row(1, 1, 1.0, 1.0, 1.0))
    standing.make_final(T0)
    assert counts(standing) == (0, 0, 0)


def test_a_day_leaves_nothing_but_counts() -> None:
    standing = begun()
    for i in range(2 * CLOSED_MAX):
        start = T0 + i * WINDOW_MS
        n = standing.give("a", start, 1.0)
        standing.show("a", n, start, 1.0, now_ms=start)
        standing.show_window("a", start, Row(1, 1, 1.0, 1.0, 1.0))
        standing.make_final(start + WINDOW_MS)
    assert standing.windows == 2 * CLOSED_MAX
    assert counts(standing) == (0, 0, 0)
    held = (standing._open, standing._closed, standing._devices["a"].waiting)
    assert tuple(map(len, held)) == (0, CLOSED_MAX, 0)


def test_it_imports_nothing_of_ours() -> None:
    tree = ast.parse(Path(module.__file__).read_text("utf-8"))
    found = {
        node.module.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
    }
    assert found <= sys.stdlib_module_names
