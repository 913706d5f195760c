"""The demo's streams have units, and what somebody decided stays."""

from __future__ import annotations

from typing import Any

from edgewake.deploy.demo_units import missing


def field(unit: str = "", revision: int = 0) -> dict[str, Any]:
    return {"type": "number", "unit": unit, "revision": revision}


def test_only_fields_that_are_there_and_that_nobody_decided_are_given_a_unit() -> None:
    units = {"speed": "km/h", "battery": "%", "heat": "Cel", "load": "%"}
    fields = {"speed": field(), "battery": field(revision=1), "heat": field("K", revision=1)}
    assert missing(fields, units) == {"speed": "km/h"}
    assert missing({}, units) == {}
