"""The registry of kinds: whatever the language calls a kind can be computed."""

from __future__ import annotations

from edgewake.cloud.analysis.jobs.kinds import KINDS
from edgewake.cloud.queries.lane_kind import LaneKind


def test_every_kind_of_the_language_has_a_job() -> None:
    assert KINDS.keys() == set(LaneKind)
