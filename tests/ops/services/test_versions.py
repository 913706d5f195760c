"""Of two concurrent changes of a row the second is refused."""

from __future__ import annotations

import pytest

from edgewake.cloud.ops.services.versions import is_same, next_stamp
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol.ops.named_set import NamedSet, SetText

KEPT = NamedSet(name="s", members=("a",), version=3, changed_at=1, changed_by="anna")


def test_a_change_of_the_newest_version_or_of_any_is_the_next_one() -> None:
    for version in (3, None):
        assert next_stamp("set 's'", KEPT, version, by="ben", now=9) == {
            "version": 4,
            "changed_at": 9,
            "changed_by": "ben",
        }
    assert next_stamp("set 's'", None, None, by="ben", now=9)["version"] == 1


@pytest.mark.parametrize(
    ("before", "why"), [(KEPT, "version 3 now, changed by anna"), (None, "was removed meanwhile")]
)
def test_a_change_of_an_older_version_is_refused_with_what_happened(
    before: NamedSet | None, why: str
) -> None:
    with pytest.raises(Problem, match=why) as refusal:
        next_stamp("set 's'", before, 2, by="ben", now=9)
    assert refusal.value.status == 409


def test_who_changed_it_and_when_is_no_difference() -> None:
    assert is_same(KEPT, SetText(members=("a",)))
    assert not is_same(KEPT, SetText(members=("a", "b")))
