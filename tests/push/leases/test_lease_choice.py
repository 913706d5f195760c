"""What a lease is counted by: its right, its devices and its share, in one condition."""

from __future__ import annotations

import pytest

from edgewake.cloud.log.filters.filter import compile_where
from edgewake.cloud.log.filters.filter_syntax import parse_where
from edgewake.cloud.log.wanted import is_in_share
from edgewake.cloud.push.counting.matching import demand_of
from edgewake.cloud.push.leases.lease_choice import condition_of
from edgewake.protocol.errors import FilterError

CARS = tuple(f"car-{number}" for number in range(200))
OF_DEVICES = {"s": ("device",)}


def seen(condition: str | None, **fields: str) -> list[str]:
    assert condition is not None
    passes = compile_where(condition).passes
    return [car for car in CARS if passes({"stream": "s", "device": car, **fields})]


def test_it_is_all_of_them_together() -> None:
    right = "device LIKE 'car-1%'"
    share = [car for car in CARS if is_in_share({"device": car}, ("device",), 0.4)]
    assert condition_of(right, None, None, {}) == right
    assert condition_of(None, None, None, {}) is None
    assert seen(condition_of(None, ("car-7", "car-8"), None, {})) == ["car-7", "car-8"]
    assert seen(condition_of(right, ("car-7", "car-12"), None, {})) == ["car-12"]
    assert seen(condition_of(None, None, 0.4, OF_DEVICES)) == share
    both = seen(condition_of(right, None, 0.4, OF_DEVICES))
    assert both == [car for car in share if car.startswith("car-1")]


def test_devices_are_found_by_the_index() -> None:
    condition = condition_of("lat > 5", CARS, 0.4, OF_DEVICES)
    demand = demand_of(parse_where(str(condition)))
    assert demand is not None
    assert len(demand.keys) == len(CARS)


def test_a_thing_of_a_query_is_its_group() -> None:
    things = {"q": ("line",), "s": ("device",)}
    passes = compile_where(str(condition_of(None, None, 0.5, things))).passes
    for car in CARS:
        in_share = is_in_share({"device": car}, ("device",), 0.5)
        assert passes({"stream": "s", "device": car, "line": "1"}) is in_share
        assert passes({"query": "q", "line": car}) is in_share_of_lines(car)


def in_share_of_lines(line: str) -> bool:
    return is_in_share({"line": line}, ("line",), 0.5)


def test_more_than_one_condition_can_have_is_refused() -> None:
    right = "device IN (" + ", ".join(f"'bus-{n}'" for n in range(900)) + ")"
    with pytest.raises(FilterError, match=r"devices and sample, .* a named set in where"):
        condition_of(right, CARS, None, {})
