"""When problems begin and end, decided from one look after another."""

from __future__ import annotations

from edgewake.cloud.ops.history.problem_log import GONE_MS, KEPT_MS, ROWS_MAX, ProblemLog
from edgewake.cloud.ops.services.problems import KnownProblem
from edgewake.protocol.ops.problem import ProblemRecord


def problem(name: str, text: str = "is failed") -> KnownProblem:
    return KnownProblem(kind="query", name=name, text=text)


class Kept:
    """Rows as Kafka keeps them, and a log that writes them."""

    def __init__(self) -> None:
        self.rows: dict[str, ProblemRecord] = {}
        self.log = ProblemLog()

    def look(self, now: int, *found: KnownProblem) -> int:
        """How many rows were written."""
        changes = self.log.changes(self.rows, found, now=now)
        for key, row in changes:
            if row is None:
                del self.rows[key]
            else:
                self.rows[key] = row
        return len(changes)


def test_a_problem_is_written_when_it_begins_and_when_it_ends_and_not_between() -> None:
    kept = Kept()
    assert kept.look(1_000, problem("a")) == 1
    assert kept.look(6_000, problem("a", "is failed twice")) == 0
    assert kept.look(11_000) == 0
    assert kept.look(6_000 + GONE_MS) == 1
    (row,) = kept.rows.values()
    assert (row.began_at, row.ended_at, row.text) == (1_000, 6_000, "is failed twice")


def test_what_flickers_is_one_problem_and_what_comes_back_later_another() -> None:
    kept = Kept()
    kept.look(0, problem("a"))
    kept.look(5_000)
    kept.look(10_000, problem("a"))
    assert len(kept.rows) == 1
    for now in (15_000, 20_000, 25_000):
        kept.look(now)
    kept.look(30_000, problem("a"))
    assert [row.ended_at for row in kept.rows.values()] == [10_000, None]


def test_a_server_that_takes_over_ends_what_the_one_before_began() -> None:
    kept = Kept()
    kept.look(0, problem("a"), problem("b"))
    kept.log = ProblemLog()
    kept.look(20_000, problem("b"))
    kept.look(20_000 + GONE_MS, problem("b"))
    assert {row.name: row.ended_at for row in kept.rows.values()} == {"a": 20_000, "b": None}


def test_what_was_acknowledged_stays_so_at_its_end() -> None:
    kept = Kept()
    kept.look(0, problem("a"))
    (key,) = kept.rows
    said = {"acknowledged_at": 1, "acknowledged_by": "ann", "note": "on it"}
    kept.rows[key] = kept.rows[key].model_copy(update=said)
    kept.look(1_000)
    kept.look(GONE_MS)
    row = kept.rows[key]
    assert (row.acknowledged_by, row.note, row.ended_at) == ("ann", "on it", 0)


def test_the_oldest_that_are_over_go_when_they_are_too_old_or_too_many() -> None:
    kept = Kept()
    kept.rows = {
        f"{n}-0": ProblemRecord(id=f"{n}-0", kind="part", name="x", text="", began_at=n, ended_at=n)
        for n in range(ROWS_MAX + 3)
    }
    assert kept.look(10_000) == 3
    assert min(row.began_at for row in kept.rows.values()) == 3
    kept.look(KEPT_MS + 10_000)
    assert kept.rows == {}
