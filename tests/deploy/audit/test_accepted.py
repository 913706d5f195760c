"""Advisories that were accepted, until their day."""

from __future__ import annotations

from datetime import date

from edgewake.deploy.audit import advisories
from edgewake.deploy.audit.accepted import Accepted, Advisory
from tests.deploy.audit.test_advisories import SNAKE, TODAY

REASON = "It is in a function that is not called here."


def test_what_is_accepted_is_accepted_until_its_day_and_must_still_be_there() -> None:
    entry = Advisory(id="GHSA-2", component=SNAKE.key, reason=REASON, until=date(2026, 12, 31))
    known = Accepted(licences=(), advisory=(entry,))
    warned = advisories.read_osv({"results": [{"vulns": [{"id": "GHSA-2"}]}]}, [SNAKE])
    nothing, unknown = advisories.Told(), advisories.Told(not_asked={SNAKE.key: "no route"})
    assert list(advisories.judge(warned, known, TODAY)) == []
    assert [
        "look at it again" in one for one in advisories.judge(warned, known, date(2027, 1, 1))
    ] == [True]
    assert ["remove it" in one for one in advisories.judge(nothing, known, TODAY)] == [True]
    assert list(advisories.judge(unknown, known, TODAY)) == []
