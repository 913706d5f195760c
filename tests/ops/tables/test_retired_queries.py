"""What removed queries leave behind goes, and nothing else."""

from __future__ import annotations

import pytest

from edgewake.cloud.ops.tables.retired_queries import (
    CLAIM_MS,
    KEPT_S,
    SETTLE_S,
    TOPICS_MAX,
    RetiredQueries,
    is_dead,
)
from edgewake.protocol.frames.stream import NameKind, Stream
from edgewake.protocol.ops.query import Registration

NOW_MS = 1_790_000_000_000


def registered(name: str, at: int = 5) -> dict[str, Registration]:
    return {name: Registration(name=name, text="", registered_at=at, claim=f"{at}-x")}


def test_results_of_a_removed_query_are_kept_for_an_hour_and_then_deleted() -> None:
    retired = RetiredQueries()
    names = ["ew.q.gone.5", "ew.q.here.5", "ew.q.here.4", "ew.s.car", "ew.up", "somebody.elses"]
    assert retired.deletable(names, registered("here"), 0.0) == []
    assert retired.deletable(names, registered("here"), KEPT_S - 1) == []
    assert retired.deletable(names, registered("here"), KEPT_S) == ["ew.q.gone.5", "ew.q.here.4"]


def test_a_topic_whose_query_is_being_registered_is_not_old() -> None:
    retired = RetiredQueries()
    assert retired.deletable(["ew.q.new.5"], {}, 0.0) == []
    assert retired.deletable(["ew.q.new.5"], registered("new"), KEPT_S) == []
    assert retired.deletable(["ew.q.new.5"], {}, KEPT_S + 1) == []


def test_beyond_the_bound_the_oldest_go_as_soon_as_nobody_writes_them() -> None:
    retired = RetiredQueries()
    names = [f"ew.q.q{i:02d}.5" for i in range(TOPICS_MAX + 3)]
    retired.deletable(names, {}, 0.0)
    assert retired.deletable(names, {}, SETTLE_S - 1) == []
    assert retired.deletable(names, {}, SETTLE_S) == names[:3]


@pytest.mark.parametrize(
    ("row", "queries", "dead"),
    [
        (Stream(name="q"), {}, False),
        (Stream(name="q", kind=NameKind.QUERY, claim="5-x"), registered("q", 5), False),
        (Stream(name="q", kind=NameKind.QUERY, claim="5-x"), registered("q", 6), True),
        (Stream(name="q", kind=NameKind.QUERY, claim="5-x"), {}, True),
        (Stream(name="q", kind=NameKind.QUERY, claim=f"{NOW_MS - CLAIM_MS}-y"), {}, False),
        (Stream(name="q", kind=NameKind.QUERY, claim="what"), {}, True),
    ],
)
def test_a_claim_without_its_registration_is_dead_after_a_while(
    row: Stream, queries: dict[str, Registration], dead: bool
) -> None:
    assert is_dead(row, queries, NOW_MS) is dead
