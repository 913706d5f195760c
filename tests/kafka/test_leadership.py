"""Which of several processes leads."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from edgewake.cloud.kafka.leadership import Role, after_answer, after_loss


@pytest.mark.parametrize(
    ("happens", "role"),
    [
        ([], Role.JOINING),
        ([False], Role.STANDBY),
        ([False, True], Role.LEADER),
        ([True, False], Role.LEADER),
        ([True, None], Role.UNSURE),
        ([True, None, True], Role.LEADER),
        ([True, None, False], Role.DEPOSED),
        ([False, None, False], Role.STANDBY),
    ],
)
def test_roles(happens: Sequence[bool | None], role: Role) -> None:
    """True, False: the group shared its partition out, to this one or to none or another; None: it
    took it away.
    """
    found = Role.JOINING
    for given in happens:
        found = after_loss(found) if given is None else after_answer(found, is_given=given)
    assert found is role
