"""The functions that a question may use."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from edgewake.cloud.lake.allowed_functions import NAMED
from edgewake.cloud.lake.answer import engine


@pytest.fixture
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with engine() as connection:
        yield connection


def test_only_functions_that_the_engine_has_are_allowed_and_none_that_looks_at_it(
    db: duckdb.DuckDBPyConnection,
) -> None:
    """A new version of the engine brings functions; each is refused until somebody looked at it."""
    kinds = "('scalar', 'aggregate', 'macro', 'window')"
    found = db.execute(
        "SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE function_type IN "
        f"{kinds}"
    ).fetchall()
    assert {name for (name,) in found} >= NAMED
    assert not {
        name
        for name in NAMED
        if name.startswith(
            ("pg_", "has_table", "current_s", "duckdb_", "__internal", "sleep", "inet_")
        )
    }
