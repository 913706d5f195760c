"""What a log shows of itself, without being changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.edge.log.tables import view
from tests.edge.helpers import json_of
from tests.edge.log.bare_log import with_two_streams


@pytest.mark.parametrize(
    ("limit", "kinds"), [(1, ["frame"]), (2, ["frame", "batch"]), (100, ["frame", *["batch"] * 4])]
)
def test_frames_are_shown_before_batches_up_to_the_limit(
    tmp_path: Path, limit: int, kinds: list[str]
) -> None:
    log = with_two_streams(tmp_path / "log")
    assert [json_of(row)["kind"] for row in view.rows(log.directory, limit)] == kinds
    log.close()
