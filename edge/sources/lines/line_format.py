"""How a line becomes a reading, the same for files, serial ports and connections: JSON, text, NMEA
0183, or what gpsd says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from edgewake.edge.intake import Intake
from edgewake.edge.log.codec import Reading
from edgewake.edge.sources.lines import gpsd, nmea
from edgewake.edge.sources.lines.json_objects import readings_of_objects
from edgewake.edge.sources.lines.lines import Line
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frame import Scalar


class LineFormat(StrEnum):
    """What a line is."""

    JSON = "json"  # an object
    TEXT = "text"  # becomes the field `line`
    NMEA = "nmea"  # a sentence of NMEA 0183, with its checksum
    GPSD = "gpsd"  # a report of gpsd


PARSERS: Final[Mapping[LineFormat, Callable[[bytes], Mapping[str, Scalar] | None]]] = {
    LineFormat.NMEA: nmea.fields_of,
    LineFormat.GPSD: gpsd.fields_of,
    LineFormat.TEXT: lambda line: {"line": line.decode("utf-8", "replace")},
}


def readings_of(
    intake: Intake, line_format: LineFormat, lines: Sequence[Line]
) -> Sequence[Reading]:
    """The readings in lines; what is wrong is refused and counted, what says nothing that is known
    is left out.
    """
    if line_format is LineFormat.JSON:
        return readings_of_objects(intake, lines)
    found = (_reading(intake, line_format, line) for line in lines)
    return [reading for reading in found if reading is not None]


def _reading(intake: Intake, line_format: LineFormat, line: Line) -> Reading | None:
    if line.too_long:
        intake.refuse(RejectReason.OVERSIZE, "a line past its bound")
        return None
    try:
        fields = PARSERS[line_format](line.text)
    except Rejected as error:
        intake.refuse(error.reason, error.detail)
        return None
    return None if fields is None else intake.check(fields)
