"""Sets of devices that are summed up beside the whole, as the configuration declares them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from edgewake.cloud.analysis.config import SET_DEVICES_MAX, SETS_MAX, AnalysisConfig


def test_sets_are_taken_as_declared() -> None:
    config = AnalysisConfig(summary_devices={"north": ("car-01", "car-02"), "one": ("car-03",)})
    assert config.summary_devices == {"north": ("car-01", "car-02"), "one": ("car-03",)}


@pytest.mark.parametrize(
    "sets",
    [
        {"North|": ("car-01",)},
        {"north": ()},
        {"north": ("no device",)},
        {"north": tuple(f"car-{i}" for i in range(SET_DEVICES_MAX + 1))},
        {f"s{i}": ("car-01",) for i in range(SETS_MAX + 1)},
    ],
)
def test_what_is_no_set_is_refused(sets: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(ValidationError):
        AnalysisConfig(summary_devices=sets)
