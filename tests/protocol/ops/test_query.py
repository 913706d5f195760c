"""Claims to the name of a query."""

from __future__ import annotations

import pytest

from edgewake.protocol.ops.query import claim_of, claimed_at


def test_two_claims_of_one_millisecond_differ_and_both_say_when() -> None:
    one, other = claim_of(1_790_000_000_000, "a"), claim_of(1_790_000_000_000, "b-2")
    assert one != other
    assert claimed_at(one) == claimed_at(other) == 1_790_000_000_000


@pytest.mark.parametrize("claim", ["", "soon-a", "-1-a", "١-a"])
def test_a_claim_of_another_form_says_no_time(claim: str) -> None:
    assert claimed_at(claim) is None
