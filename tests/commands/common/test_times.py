"""Times that people give to commands."""

from __future__ import annotations

import pytest

from edgewake.cloud.commands.common.times import parse_time

NOW_MS = 1_794_988_800_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1794988800000", NOW_MS),
        ("2026-11-18T08:00:00Z", NOW_MS),
        ("2026-11-18T09:00:00+01:00", NOW_MS),
        ("30s", NOW_MS - 30_000),
        ("10m", NOW_MS - 600_000),
        ("6h", NOW_MS - 6 * 3_600_000),
        ("7d", NOW_MS - 7 * 86_400_000),
        ("99999999d", 0),
    ],
)
def test_a_moment_milliseconds_and_so_long_ago(text: str, expected: int) -> None:
    assert parse_time(text, NOW_MS) == expected


@pytest.mark.parametrize(
    "text", ["", "m", "yesterday", "-5m", "1.5h", "²d", "10w", "2026-11-18T08:00:00"]
)
def test_anything_else_is_refused_with_what_is_expected(text: str) -> None:
    with pytest.raises(ValueError, match="expected a time such as"):
        parse_time(text, NOW_MS)
