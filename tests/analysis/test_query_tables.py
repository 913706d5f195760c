"""Which of the shipped queries were registered before: a file beside the checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.cloud.analysis.query_tables import names_in, write_names


def test_names_that_were_written_are_there_after_a_restart(tmp_path: Path) -> None:
    known = tmp_path / "kept" / "built_in_queries.json"
    assert names_in(known) == frozenset()
    write_names(known, {"b", "a"})
    assert names_in(known) == {"a", "b"}
    assert [one.name for one in known.parent.iterdir()] == [known.name]


@pytest.mark.parametrize("left", ["", '["a"', "7"])
def test_a_file_that_was_torn_keeps_no_analysis_from_its_start(left: str, tmp_path: Path) -> None:
    """It was written in place at each start: a kill within that was the end of every later one."""
    known = tmp_path / "built_in_queries.json"
    known.write_text(left)
    assert names_in(known) == frozenset()
