"""Who is let in, by what a client has open already."""

from __future__ import annotations

import pytest

from edgewake.cloud.access.admission import DEVICES_NAMED_MAX, Admission, Holding
from edgewake.cloud.access.config import AccessConfig
from edgewake.cloud.log.hub import Full
from edgewake.cloud.log.subscription import Sight
from edgewake.cloud.log.wanted import DEVICES_MAX, Wanted


def sight(number: int) -> Sight:
    """As many devices as one request may name, each time others."""
    devices = frozenset(f"d{number}-{n}" for n in range(DEVICES_MAX))
    return Sight(Wanted(streams=("s",), devices=devices))


def test_devices_that_requests_name_are_bounded_by_client() -> None:
    admission = Admission(AccessConfig(name="access-1"))
    greedy, other = Holding(), Holding()

    def name(holding: Holding, one: Sight) -> None:
        more = holding.more_devices(one)
        total = greedy.devices + other.devices
        admission.devices(more, total=lambda: total, held=holding.devices)
        holding.add(one)

    own_max = DEVICES_NAMED_MAX // 4 // DEVICES_MAX
    sights = [sight(n) for n in range(own_max + 1)]
    for one in sights[:own_max]:
        name(greedy, one)
    with pytest.raises(Full, match="as many as one client may"):
        name(greedy, sights[own_max])
    name(greedy, sights[0])
    name(other, sights[own_max])
    greedy.drop(sights[0])
    assert greedy.devices == own_max * DEVICES_MAX, "it reads the first one once more"
    greedy.drop(sights[0])
    name(greedy, sights[own_max])
