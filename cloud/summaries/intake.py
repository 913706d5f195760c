"""Turns devices' sketches into records of `ew.summaries.*`, or refuses them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from edgewake.cloud.summaries import foreign, late_part
from edgewake.cloud.summaries.summary import DAY_MS, KEPT_MS, Record, Series, Sketch, Step, Summary
from edgewake.protocol.sketches import sketch
from edgewake.protocol.sketches.sketch import DeviceSketch, Numbers, SketchKind

SPARE_MS: Final = DAY_MS
"""Minutes are taken for gone so long before they are."""


def taken(reading: Mapping[str, Any]) -> list[tuple[Step, Record]]:
    """The record of a device's reading, and the step that it is filed under. Raises Rejected.

    The key holds device, window and kind, so a sketch that is sent or read twice is there once.
    What was received when the minutes of its time are kept no more counts beside roll-ups, in its
    hour and in its day (late_part).
    """
    found = sketch.parse(reading)
    foreign.check(found.kind, found.data, found.readings)
    is_numbers = found.kind is SketchKind.NUMBERS
    summary = Summary(
        found.readings,
        Numbers.decode(found.data) if is_numbers else Numbers(),
        {} if is_numbers else {found.kind: Sketch(found.readings, found.data)},
    )
    devices = DeviceSketch.set_of(reading["device"]) if found.beside else ""
    maker = f"{reading['device']}|{found.end_ms}|{found.kind}"
    record = Record(
        Series(found.stream, found.field, devices), found.start_ms, found.end_ms, summary, maker
    )
    step, age_ms = Step.around(found.start_ms, found.end_ms), reading["received_at"] - found.end_ms
    if age_ms <= KEPT_MS[Step.MINUTE] - SPARE_MS:
        return [(step, record)]
    record = replace(record, maker=late_part.PREFIX + maker)
    return [
        (late, record)
        for late in (Step.HOUR, Step.DAY)
        if late.ms >= step.ms and age_ms <= KEPT_MS[late] - SPARE_MS
    ]
