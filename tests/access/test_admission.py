"""Who is let in, by what a client has open already."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.access.admission import DEVICES_NAMED_MAX, Admission, Holding
from edgewake.cloud.access.config import AccessConfig
from edgewake.cloud.log.hub_bounds import Full
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


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([None, "n > 1", "n > 2"]))))
def test_what_a_client_holds_is_what_it_has_open(opened: list[tuple[str, str | None]]) -> None:
    """The counts are kept, and not made at each opening: of ten thousand that is a minute."""
    holding = Holding()
    sights = [Sight(Wanted(streams=(name,), where=where)) for name, where in opened]
    for number, one in enumerate(sights, 1):
        holding.add(one)
        _check(holding, sights[:number])
    for number, one in enumerate(sights, 1):
        holding.drop(one)
        _check(holding, sights[number:])


def _check(holding: Holding, left: list[Sight]) -> None:
    assert holding.filters == len({one for one in left if not one.is_common})
    assert holding.names == {name for one in left for name in one.subscription.streams}
