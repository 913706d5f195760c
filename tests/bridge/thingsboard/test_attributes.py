"""What is remembered of devices of ThingsBoard is bounded for each device and each client."""

from __future__ import annotations

import pytest

from edgewake.cloud.bridge.thingsboard import attributes as module
from edgewake.cloud.bridge.thingsboard.attributes import (
    ATTRIBUTES_MAX,
    VALUES_BYTES_MAX,
    Attributes,
)


def test_each_kind_is_kept_and_a_later_value_takes_the_place_of_an_earlier_one() -> None:
    here = Attributes()
    assert here.known("boiler") == {"client": {}, "shared": {}}
    assert here.keep("boiler", "boiler", "client", {"a": 1, "b": 2}) == 0
    assert here.keep("boiler", "boiler", "client", {"a": "three"}) == 0
    assert here.keep("boiler", "boiler", "shared", {"a": 4}) == 0
    assert here.known("boiler") == {"client": {"a": "three", "b": 2}, "shared": {"a": 4}}


def test_a_device_has_so_many_and_so_many_bytes() -> None:
    here = Attributes()
    many = {f"a{n}": n for n in range(ATTRIBUTES_MAX + 10)}
    assert here.keep("boiler", "boiler", "client", many) == 10
    large = "x" * (VALUES_BYTES_MAX // 2)
    assert here.keep("oven", "oven", "client", {"a": large, "b": large, "c": 1}) == 1
    assert list(here.known("oven")["client"]) == ["a", "c"]
    assert here.keep("oven", "oven", "client", {"a": ""}) == 0, "what became shorter gives room"
    assert here.keep("oven", "oven", "client", {"b": large}) == 0


def test_a_gateway_that_names_many_devices_pushes_out_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "DEVICES_MAX", 40)
    monkeypatch.setattr(module, "DEVICES_OF_ONE", 10)
    here = Attributes()
    here.keep("boiler", "boiler", "client", {"a": 1})
    for n in range(1000):
        here.keep(f"invented-{n}", "gateway", "client", {"a": 1})
    assert here.known("boiler")["client"] == {"a": 1}
    assert here.known("invented-999")["client"] == {"a": 1}
    assert here.known("invented-989")["client"] == {}
    for n in range(29):
        here.keep(f"other-{n}", f"other-{n}", "client", {"a": 1})
    assert here.known("boiler")["client"] == {"a": 1}
    here.keep("one-more", "one-more", "client", {"a": 1})
    assert here.known("boiler")["client"] == {}, "the bound of all: the longest quiet"
