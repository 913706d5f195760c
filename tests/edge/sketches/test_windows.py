"""Windows of sketches, decided without a log: what is made again after crashes is what was made
without.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.sketches.windows import LATE_RUN_MAX, Windows, resumed

SIZE_MS = 1000
T0 = 1_790_000_000_000
Output = list[tuple[tuple[int, int], list[int]]]


class Log:
    """What the log keeps: readings, the committed cursor and state, and the sketches that were
    committed with them. A sketch is the list of positions in it.
    """

    def __init__(self, times: list[int], grace_ms: int) -> None:
        self.times = times
        self.grace_ms = grace_ms
        self.cursor, self.state, self.output = 0, None, Output()
        self.windows = Windows(SIZE_MS, grace_ms)

    def life(self, readings: int) -> bool:
        """Read so many from the cursor on, and die; False where nothing was left."""
        state: bytes | None = self.state
        self.windows = resumed(state, size_ms=SIZE_MS, grace_ms=self.grace_ms)
        filled: dict[int, list[int]] = {}
        start = self.cursor + 1
        for position in range(start, min(start + readings, len(self.times) + 1)):
            before, (self.windows, placed) = (
                self.windows,
                self.windows.place(position, self.times[position - 1]),
            )
            if placed.over:
                made = [(before.span_ms(window), filled.pop(window)) for window in placed.over]
                self.cursor, self.state, self.output = (
                    self.windows.needed_from - 1,
                    self.windows.encode(),
                    self.output + made,
                )  # type: ignore[assignment]
            if placed.window is not None:
                filled.setdefault(placed.window, []).append(position)
        return start + readings <= len(self.times)


times = st.lists(
    st.one_of(
        st.integers(0, 400),
        st.integers(0, 400),
        st.integers(-1500, 0),
        st.sampled_from([-3_600_000, 5000, 10**9]),
    ),
    max_size=80,
)


@given(times, st.sampled_from([0, 500, 3000]), st.lists(st.integers(1, 60), max_size=20))
def test_deaths_at_any_reading_change_no_sketch_and_no_count(
    steps: list[int], grace_ms: int, lives: list[int]
) -> None:
    t, at = T0, []
    for step in steps:
        t = max(0, t + step)
        at.append(t)
    whole, killed = Log(at, grace_ms), Log(at, grace_ms)
    assert not whole.life(len(at) + 1)
    for readings in lives:
        killed.life(readings)
    assert not killed.life(len(at) + 1)
    assert killed.output == whole.output
    assert (killed.windows.counted, killed.windows.late, killed.windows.turns) == (
        whole.windows.counted,
        whole.windows.late,
        whole.windows.turns,
    )
    spans = [span for span, _ in whole.output]
    assert len(set(spans)) == len(spans), (
        "in the cloud the second one would take the place of the first"
    )
    inside = sorted(position for _, positions in whole.output for position in positions)
    still_open = whole.windows.counted - len(inside)
    assert len(set(inside)) == len(inside)
    assert len(inside) + still_open + whole.windows.late == len(at)


def run(*seconds: float, grace_ms: int = 0) -> Log:
    log = Log([T0 + round(second * 1000) for second in seconds], grace_ms)
    log.life(len(seconds) + 1)
    return log


def test_a_window_is_over_with_the_first_reading_after_it() -> None:
    log = run(0, 0.5, 0.999, 1.0, 1.5)
    assert log.output == [((T0, T0 + 1000), [1, 2, 3])]
    assert log.cursor == 3


def test_with_a_grace_what_comes_out_of_order_is_in_its_window_and_the_log_keeps_what_is_open() -> (
    None
):
    log = run(0, 1.2, 0.8, 1.6, grace_ms=500)
    assert (log.output, log.cursor, log.windows.late) == ([((T0, T0 + 1000), [1, 3])], 1, 0)
    assert run(0, 1.2, 0.8, 1.6).windows.late == 1


def test_a_clock_that_is_set_back_begins_windows_anew_under_another_label() -> None:
    log = run(0, 3600, *[1] * (LATE_RUN_MAX + 1), 2)
    assert [span for span, _ in log.output] == [
        (T0, T0 + 1000), (T0 + 3_600_000, T0 + 3_601_000), (T0 + 1001, T0 + 2000),
    ]  # fmt: skip
    assert (log.windows.late, log.windows.turns) == (LATE_RUN_MAX, 1)


@pytest.mark.parametrize(
    "kept",
    [
        None,
        b"",
        b"{}",
        b"[1000]",
        b"[1000, 1, 2, 3, 4, 5, 6, null]",
        b"[2000, 1, 2, 3, 4, 5, 6, 7]",
    ],
)
def test_a_state_that_cannot_be_read_or_is_of_other_windows_is_none(kept: bytes | None) -> None:
    assert resumed(kept, size_ms=1000, grace_ms=0) == Windows(1000, 0)


def test_the_grace_holds_from_the_first_reading_on() -> None:
    log = run(5.0, 4.2, 3.9, 7.5, grace_ms=1000)
    assert log.output == [((T0 + 4000, T0 + 5000), [2]), ((T0 + 5000, T0 + 6000), [1])]
    assert log.windows.late == 1


def test_a_late_reading_that_is_read_again_after_a_crash_is_in_no_window_still() -> None:
    """It stands behind the first reading of a window that was open: a second sketch of its window
    would take the first one's place.
    """
    times = [T0 + round(second * 1000) for second in (0, 1.2, 2.1, 0.3, 3.05, 3.4, 6)]
    whole, killed = Log(times, 1000), Log(times, 1000)
    assert not whole.life(8)
    assert killed.life(5)
    assert killed.cursor == 2, "the late one is read again"
    assert not killed.life(8)
    assert killed.output == whole.output
    assert [positions for _, positions in whole.output] == [[1], [2], [3], [5, 6]]
    assert killed.windows.late == whole.windows.late == 1


@pytest.mark.parametrize(("late", "turns"), [(LATE_RUN_MAX, 1), (LATE_RUN_MAX + 1, 2)])
def test_after_a_clock_was_set_back_as_many_stragglers_are_late_as_before(
    late: int, turns: int
) -> None:
    log = run(50, *[5] * (LATE_RUN_MAX + 1), *[1] * late)
    assert (log.windows.turns, log.windows.late) == (turns, 2 * LATE_RUN_MAX)


@pytest.mark.parametrize(
    ("turns", "label"), [(0, 7_000), (1, 7_001), (998, 7_998), (999, 7_999), (5_000, 7_999)]
)
def test_however_often_a_clock_is_set_back_a_window_begins_before_its_end(
    turns: int, label: int
) -> None:
    assert Windows(SIZE_MS, 0, turns=turns).span_ms(7) == (label, 8_000)
