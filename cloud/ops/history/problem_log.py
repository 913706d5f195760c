"""Decides when problems begin and end, from one check after another. Pure.

Its output are rows of `ew.problems`. A problem is identified by its kind and name; its sentence may
change while it lasts (a count grows). It ends when it was not seen for GONE_MS, so one that
flickers is a single problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from edgewake.cloud.ops.services.problems import KnownProblem
from edgewake.protocol.ops.problem import ProblemRecord

GONE_MS: Final = 15_000
"""A problem that was not seen for this time, three checks, has ended."""
KEPT_MS: Final = 90 * 86_400_000
"""How long ended problems are kept."""
ROWS_MAX: Final = 2_000
"""The most problems, some 300 bytes each; those that ended first are removed first."""

Key = tuple[str, str]


class ProblemLog:
    """Decides which rows to write. Only one server may use it: the one that judges alerts."""

    def __init__(self) -> None:
        self._seen_at: dict[str, int] = {}
        """Id of an open problem → when it was last seen, ms."""
        self._texts: dict[str, str] = {}

    def changes(
        self, rows: Mapping[str, ProblemRecord], found: Iterable[KnownProblem], *, now: int
    ) -> list[tuple[str, ProblemRecord | None]]:
        """Returns the rows to write (None: to remove) after a check that found these problems."""
        open_rows = {(row.kind, row.name): row for row in rows.values() if row.ended_at is None}
        written: list[tuple[str, ProblemRecord | None]] = []
        new_ids = iter(_free_ids(rows, now))
        for problem in _each_once(found):
            row = open_rows.pop((problem.kind, problem.name), None)
            if row is None:
                row = ProblemRecord(
                    id=next(new_ids),
                    kind=problem.kind,
                    name=problem.name,
                    text=problem.text,
                    began_at=now,
                )
                written.append((row.id, row))
            self._seen_at[row.id] = now
            self._texts[row.id] = problem.text
        endings = (self._ended(row, now) for row in open_rows.values())
        written += [(row.id, row) for row in endings if row is not None]
        written += [(row_id, None) for row_id in _outlived(rows, now)]
        return written

    def _ended(self, row: ProblemRecord, now: int) -> ProblemRecord | None:
        """Returns the change for a row whose problem this check did not find."""
        seen_at = self._seen_at.setdefault(row.id, now)
        if now - seen_at < GONE_MS:
            return None
        self._seen_at.pop(row.id)
        text = self._texts.pop(row.id, row.text)
        return row.model_copy(update={"ended_at": seen_at, "text": text})


def _each_once(found: Iterable[KnownProblem]) -> Iterable[KnownProblem]:
    return {(one.kind, one.name): one for one in found}.values()


def _free_ids(rows: Mapping[str, ProblemRecord], now: int) -> Iterable[str]:
    number = 0
    while True:
        name = f"{now}-{number}"
        if name not in rows:
            yield name
        number += 1


def _outlived(rows: Mapping[str, ProblemRecord], now: int) -> list[str]:
    """Returns ended problems that are too old, or too many."""
    over = sorted(
        (row for row in rows.values() if row.ended_at is not None),
        key=lambda row: row.ended_at or 0,
    )
    too_many = max(0, len(rows) - ROWS_MAX)
    return [
        row.id
        for number, row in enumerate(over)
        if number < too_many or now - (row.ended_at or 0) > KEPT_MS
    ]
