"""What is wrong with a chain is said when it is read."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from tests.edge.processors.helpers import chain


@pytest.mark.parametrize(
    ("processor", "said"),
    [
        ({"type": "filter", "where": "x >"}, "character 4: expected a field, a constant or a function, found the end"),
        ({"type": "derive", "fields": {"device": "x"}}, "no name of the envelope"),
        ({"type": "select", "keep": ["x"], "drop": ["y"]}, "expected either keep or drop"),
        ({"type": "select", "rename": {"x": "z", "y": "z"}}, "two fields get one name"),
        ({"type": "units", "fields": {"x": {"unit": "m", "to": "s"}}}, "m is a length, s is a time"),
        ({"type": "window", "fields": ["x"]}, "expected either size_s or size_count"),
        ({"type": "window", "fields": ["x"], "size_s": 1, "size_count": 1}, "expected either size_s or size_count"),
        ({"type": "window", "fields": ["x"], "size_s": 10, "every_s": 3}, "expected every_s, or up to 100 times that"),
        ({"type": "window", "fields": ["x"], "size_s": 3600, "every_s": 1}, "expected every_s, or up to 100 times that"),
        ({"type": "window", "fields": ["x"], "size_count": 4, "every_count": 8}, "expected every_count, or up to 100 times that"),
        ({"type": "window", "fields": ["x"], "size_count": 4, "every_s": 1}, "every_s and grace_s belong to size_s"),
        ({"type": "window", "fields": ["x"], "size_s": 4, "every_count": 1}, "every_count belongs to size_count"),
        ({"type": "window", "fields": ["x"], "size_s": 1, "grace_s": 101}, "grace_s: expected at most 100 times the step"),
        ({"type": "pattern", "name": "p", "sequence": ["x = 1"], "within_s": 1}, "at least 2 items"),
        ({"type": "rule", "name": "r", "when": "x = 1", "unknown": 1}, "Extra inputs are not permitted"),
        ({"type": "spline"}, "expected tags"),
    ],
)
def test_errors_say_what_was_expected(processor: dict[str, object], said: str):
    with pytest.raises(ValidationError, match=re.escape(said)):
        chain(processor)
