"""What a rule for alerts may look at."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from edgewake.protocol.ops.alert import RuleText


@pytest.mark.parametrize(
    ("rule", "basis"),
    [({"stream": "heat", "when": "t > 30"}, "stream heat by device"),
     ({"query": "mean", "when": "x > 1", "by": []}, "query mean by nothing"),
     ({"silent_s": 60}, "silence of devices"), ({"silent_s": 60, "stream": "s"}, "silence of s"),
     ({"problems": []}, "problems")],
)  # fmt: skip
def test_a_rule_looks_at_one_thing(rule: dict[str, Any], basis: str) -> None:
    assert RuleText.model_validate(rule).basis == basis


@pytest.mark.parametrize(
    ("rule", "why"),
    [({}, "expected one of"), ({"stream": "a", "query": "b", "when": "x"}, "expected one of"),
     ({"query": "b", "silent_s": 60, "when": "x"}, "expected one of"),
     ({"stream": "a"}, "when: expected a condition"),
     ({"problems": [], "when": "x"}, "no condition of its own"),
     ({"silent_s": 60, "until": "x"}, "over with the first reading"),
     ({"silent_s": 9}, "greater than or equal to 10")],
)  # fmt: skip
def test_what_does_not_fit_together_is_said(rule: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        RuleText.model_validate(rule)
