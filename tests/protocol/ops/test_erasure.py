"""An erasure goes through its steps to its end."""

from __future__ import annotations

from typing import Literal

import pytest

from edgewake.protocol.ops.erasure import STEPS, Erasure, Step, report_key


@pytest.mark.parametrize("what", ["stream", "device"])
def test_each_step_is_followed_by_the_next_until_all_is_done(
    what: Literal["stream", "device"],
) -> None:
    step, seen = STEPS[what][0], [STEPS[what][0]]
    while step is not Step.DONE:
        now = Erasure(
            id="e", what=what, name="n", asked_at=0, asked_by="me", step=step, updated_at=0
        )
        assert now.is_open
        step = now.following
        seen.append(step)
    assert seen == list(STEPS[what])


def test_a_part_reports_under_its_own_key() -> None:
    assert report_key("e1", "lake") == "e1|lake"
