"""What a log reports of itself."""

from __future__ import annotations

from dataclasses import replace

from edgewake.edge.log.state import LogState
from edgewake.edge.log.status import LogStatus

STATUS = LogStatus(LogState.GOOD, 1, 10, 0, None, {"quota": 3, "age": 4}, given_up_readings=7)


def test_what_was_given_up_waits_no_more() -> None:
    assert (STATUS.waiting_readings, replace(STATUS, backlog_readings=5).waiting_readings) == (3, 0)


def test_what_is_lost_is_the_sum_of_all_reasons() -> None:
    assert STATUS.lost_readings == 7
