"""LIKE matches what SQLite's does, and what an index may look for."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.log.filters.filter_like import like_matcher, literal_prefix, search_width
from edgewake.protocol.errors import FilterError
from tests.examples import examples

TEXTS = st.text("aB%_!\n.", max_size=8)


@given(TEXTS, st.lists(TEXTS, min_size=1), st.sampled_from([None, "!", "a"]))
@settings(max_examples=examples(200))
def test_a_pattern_matches_what_it_does_in_sqlite(
    pattern: str, texts: list[str], escape: str | None
) -> None:
    try:
        matches = like_matcher(pattern, escape=escape)
        folded = like_matcher(pattern, escape=escape, ignore_case=True)
        prefix, is_whole = literal_prefix(pattern, escape=escape)
    except FilterError:
        assert escape is not None
        assert pattern.endswith(escape)
        return
    with closing(sqlite3.connect(":memory:")) as db:
        for is_exact, ours in ((1, matches), (0, folded)):
            if not is_exact and escape == "a":
                continue  # SQLite folds the escape, too
            db.execute(f"PRAGMA case_sensitive_like = {is_exact}")
            behind = "" if escape is None else f" ESCAPE '{escape}'"
            asked = [db.execute(f"SELECT ? LIKE ?{behind}", (one, pattern)) for one in texts]
            assert [ours(one) for one in texts] == [bool(found.fetchone()[0]) for found in asked]
    for one in filter(matches, texts):
        assert one == prefix if is_whole else one.startswith(prefix)


def test_what_a_pattern_costs_is_known_before() -> None:
    assert [search_width(one) for one in ("a_b", "%abc%", "a%b_c%d", "%_%__%")] == [0, 0, 3, 2]


def test_a_pattern_that_ends_within_an_escape_is_refused() -> None:
    with pytest.raises(FilterError, match="ends with the ESCAPE"):
        like_matcher("a!", escape="!")
