"""When something is done about a slow reader, and when it is left alone."""

from __future__ import annotations

import pytest

from edgewake.cloud.access.slow.policy import Policy, Wish, likely_events, wish
from edgewake.cloud.log.request import RequestError

ALL = tuple(Policy)


def test_who_says_nothing_gets_the_operators_first() -> None:
    assert wish(None, None, ALL, 30) == Wish(Policy.WAIT, 30)
    assert wish(None, None, (Policy.END, Policy.SKIP), 30) == Wish(Policy.END, 30)
    assert wish("skip", "5", ALL, 30) == Wish(Policy.SKIP, 5)


@pytest.mark.parametrize(
    ("policy", "after", "allowed", "expected"),
    [
        ("drop", None, ALL, "wait, conflate, skip or end"),
        ("wait", None, (Policy.END,), "expected end, as this server allows"),
        ("skip", "4", ALL, "from 5 to 3600"),
        ("skip", "3601", ALL, "from 5 to 3600"),
        ("skip", "-9", ALL, "from 5 to 3600"),
        ("skip", "1e3", ALL, "from 5 to 3600"),
        ("skip", "١٠", ALL, "from 5 to 3600"),
        ("skip", "60", (Policy.SKIP,), "from 5 to 30"),
    ],
)
def test_what_is_not_allowed_is_refused_in_words(
    policy: str, after: str | None, allowed: tuple[Policy, ...], expected: str
) -> None:
    with pytest.raises(RequestError, match=expected):
        wish(policy, after, allowed, 30)


@pytest.mark.parametrize(
    ("records", "shown", "passed", "expected"),
    [(10, 0, 0, None), (10, 500, 5, 1000), (10, 1, 100, 0), (7, 0, 5, 0)],
)
def test_events_are_told_by_what_records_were_to_it(
    records: int, shown: int, passed: int, expected: int | None
) -> None:
    start, here = (((3, 0), (9, 0)),), (((3 + passed, 0), (9, 4)),)
    assert likely_events(records, shown, start, here) == expected
