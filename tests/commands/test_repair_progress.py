"""What a command says while it waits for a repair."""

from __future__ import annotations

from typing import Any

import pytest

from edgewake.cloud.commands.repair import progress_of

ROW: dict[str, Any] = {
    "state": "running",
    "detail": "",
    "done_to": None,
    "added": 0,
    "changed": 0,
    "withdrawn": 0,
    "unchanged": 0,
}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            ROW | {"state": "waiting"},
            "waiting: the analysis begins with the next of its looks, or after another repair",
        ),
        (ROW | {"state": "waiting", "detail": "the rest follows"}, "waiting: the rest follows"),
        (ROW, "computing"),
        (
            ROW | {"done_to": 1_795_248_000_000},
            "windows that begin before 2026-11-21 08:00:00+00:00 are done",
        ),
        (
            ROW | {"done_to": 1_795_248_000_000, "added": 3, "unchanged": 2},
            "windows that begin before 2026-11-21 08:00:00+00:00 are done: 3 added, 2 unchanged",
        ),
    ],
)
def test_where_a_repair_is_is_one_sentence(row: dict[str, Any], said: str) -> None:
    assert progress_of(row) == said
