"""Lines that hold an object each."""

from __future__ import annotations

from edgewake.edge.sources.lines.json_objects import readings_of_objects
from edgewake.edge.sources.lines.lines import Line
from edgewake.protocol.errors import RejectReason
from tests.edge.sources.sink import MemorySink, intake_of


def test_each_good_line_is_a_reading_and_the_others_are_counted() -> None:
    intake = intake_of(MemorySink())
    lines = [
        Line(b'{"x":1}', 7), Line(b"no json", 15), Line(b"", 999, too_long=True),
        Line(b'{"x":2}', 1007), Line(b"", 9999, too_long=True),
    ]  # fmt: skip
    readings = readings_of_objects(intake, lines)
    assert [fields for _, fields in readings] == [{"x": 1}, {"x": 2}]
    assert intake.refused == {RejectReason.JSON: 1, RejectReason.OVERSIZE: 2}
