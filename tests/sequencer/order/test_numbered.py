"""Records whose numbers grow, with holes: each number once, and no device is silenced."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.sequencer.order.arrival import Arrival, Statement, StatementKind
from edgewake.cloud.sequencer.order.bounds import RESTART_S, WINDOW, Bounds
from edgewake.cloud.sequencer.order.changes import Changes
from edgewake.cloud.sequencer.order.numbered import NumberedRecords
from edgewake.cloud.sequencer.order.state_table import StateTable, line_digest, state_key
from edgewake.protocol.frames.record import Discipline, Placement

T0 = 1_790_000_000_000


class Line:
    """One device's records, accepted one by one."""

    def __init__(self, discipline: Discipline = Discipline.NUMBERED, **bounds: int) -> None:
        self.discipline, self.table, self.outcomes = discipline, StateTable(), Counter[str]()
        self.records = NumberedRecords(Bounds(**bounds), self.table, Changes(), self.outcomes)
        self.key = state_key(line_digest("d", "s", discipline), 1)
        self.offset = -1

    def send(self, number: int, *, content: int = 0, after_s: float = 0.0) -> list[str]:
        """What came out: "passed" for the record, the kind of a statement."""
        self.offset += 1
        placement = Placement(self.discipline, "s", 1, number, number, number, 1, content)
        arrival = Arrival(self.offset, "d", placement, 100, T0 + round(after_s * 1000))
        slot = self.table.find(self.key)
        if slot < 0:
            out = self.records.open(self.key, self.table.insert(self.key), arrival)
        else:
            out = self.records.accept(self.key, slot, arrival)
        assert out[-1:] in ([], [arrival])
        return [one.kind.value if isinstance(one, Statement) else "passed" for one in out]


@given(st.lists(st.integers(1000, 1000 + WINDOW - 1), max_size=60))
def test_each_number_passes_once_in_whatever_order_they_come(numbers: list[int]) -> None:
    line, came = Line(), {1000}
    assert line.send(1000) == ["passed"]
    for number in numbers:
        assert line.send(number) == ([] if number in came else ["passed"])
        came.add(number)
    assert line.outcomes["restarted"] == 0
    assert line.outcomes["passed"] == len(came)


def test_a_number_far_below_is_a_counter_that_began_again() -> None:
    line = Line()
    line.send(WINDOW + 50)
    assert line.send(50) == [StatementKind.RESTARTED.value, "passed"]
    assert line.send(51) == ["passed"]
    assert line.send(51) == []


def test_a_late_record_from_before_the_last_one_restarts_nothing() -> None:
    line = Line()
    line.send(WINDOW + 50, after_s=10)
    assert line.send(50, after_s=9) == []


def test_number_one_is_a_repeat_at_first_and_a_new_beginning_after_a_while() -> None:
    line = Line()
    for number in (1, 2, 3):
        line.send(number)
    assert line.send(1, after_s=RESTART_S - 1) == []
    assert line.send(1, after_s=RESTART_S) == [StatementKind.RESTARTED.value, "passed"]


def test_another_content_under_a_number_that_came_is_a_new_reading() -> None:
    line = Line()
    for number in range(1, 9):
        line.send(number, content=100 + number)
    assert line.send(5, content=105) == []
    assert line.send(5, content=7) == [StatementKind.RESTARTED.value, "passed"]


def test_numbers_that_bridges_gave_never_begin_again() -> None:
    line = Line(Discipline.KEYED)
    line.send(WINDOW + 50, content=1)
    assert line.send(1, content=2, after_s=10 * RESTART_S) == []
    assert line.outcomes == {"passed": 1, "repeat": 1}


def test_at_the_bound_of_contents_the_oldest_line_is_forgotten() -> None:
    line = Line(contents=1)
    line.send(1, content=1)
    line.records.contents[b"another"] = line.records.contents[line.key]
    del line.records.contents[line.key]
    line.send(2, content=2)
    assert list(line.records.contents) == [line.key]


def test_what_is_forgotten_leaves_nothing() -> None:
    line = Line()
    line.send(1, content=1)
    line.send(200, content=2)
    assert line.key in line.records.wide
    line.records.forget(line.key)
    assert (line.records.wide, line.records.contents) == ({}, {})
