"""Sketches of devices become records of `ew.summaries.*`: a reading of `device_sketches` in, a record or a refusal out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgewake.cloud.summaries import foreign
from edgewake.cloud.summaries.summary import Record, Series, Sketch, Step, Summary
from edgewake.protocol import sketch
from edgewake.protocol.sketch import DeviceSketch, Numbers, SketchKind


def taken(reading: Mapping[str, Any]) -> tuple[Step, Record]:
    """The record that a device's reading becomes, and the step that it is filed under; raises Rejected.

    The key holds device, window and kind, so a sketch that is sent or read twice is there once.
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
    return Step.around(found.start_ms, found.end_ms), Record(
        Series(found.stream, found.field, devices), found.start_ms, found.end_ms, summary, maker
    )
