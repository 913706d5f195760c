"""Which sketches may be asked for."""

from __future__ import annotations

import math

import pytest

from edgewake.edge.sketches.config import OPEN_MAX, SketchConfig


def config(**changed: object) -> SketchConfig:
    return SketchConfig.checked({"stream": "speed", "fields": ["x"], **changed})


@pytest.mark.parametrize(
    "good",
    [{}, {"window_s": 1, "grace_s": OPEN_MAX}, {"window_s": 86_400}, {"kinds": ["numbers"]},
        {"fields": [f"f{n}" for n in range(16)]},
     {"grace_s": 0.5}, {"beside": True}],
)  # fmt: skip
def test_what_may_be_asked_for(good: dict[str, object]) -> None:
    assert config(**good).stream == "speed"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [({"window_s": 7}, "part of a day"), ({"window_s": 0}, "window_s"),
        ({"window_s": 86_401}, "window_s"),
     ({"window_s": 1, "grace_s": OPEN_MAX + 0.1}, "at most 10 windows"), ({"kinds": []}, "kinds"),
     ({"kinds": ["numbers", "numbers"]}, "each kind once"),
     ({"kinds": ["sample"]}, "not made on the device"), ({"kinds": ["mode"]}, "kinds"),
     ({"fields": []}, "fields"),
     ({"fields": [f"f{n}" for n in range(17)]}, "fields"),
     ({"fields": ["x", "y", "x"]}, "twice"), ({"fields": ["device"]}, "envelope"),
     ({"stream": "Speed"}, "a-z"),
     ({"grace_s": -1}, "grace_s"), ({"grace_s": math.inf}, "grace_s"),
     ({"grace_s": math.nan}, "grace_s")],
)  # fmt: skip
def test_what_may_not(bad: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        config(**bad)
