"""Lines that hold a JSON object each, or a message of a map, as readings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgewake.edge.intake.intake import Intake
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.sources.lines.lines import TOO_LONG, Line
from edgewake.edge.sources.mapping import MessageMaps
from edgewake.protocol.errors import RejectReason


def readings_of_objects(intake: Intake, lines: Sequence[Line]) -> Sequence[Reading]:
    """The readings in lines, in order; what is wrong is refused and counted."""
    if too_long := sum(line.too_long for line in lines):
        intake.refuse(RejectReason.OVERSIZE, TOO_LONG, too_long)
    return intake.check_lines([line.text for line in lines if not line.too_long])


def readings_of_messages(
    maps: MessageMaps, intake: Intake, lines: Sequence[Line]
) -> Sequence[Reading]:
    """The readings that maps make of lines, in order; what is wrong is refused and counted."""
    bodies: list[dict[str, Any]] = []
    for line in lines:
        if line.too_long:
            intake.refuse(RejectReason.OVERSIZE, TOO_LONG)
        else:
            bodies += maps.bodies(intake, line.text)
    return intake.check_all(bodies)
