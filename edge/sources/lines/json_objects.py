"""Lines that hold a JSON object each, as readings."""

from __future__ import annotations

from collections.abc import Sequence

from edgewake.edge.intake.intake import Intake
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.sources.lines.lines import Line
from edgewake.protocol.errors import RejectReason


def readings_of_objects(intake: Intake, lines: Sequence[Line]) -> Sequence[Reading]:
    """The readings in lines, in order; what is wrong is refused and counted."""
    if too_long := sum(line.too_long for line in lines):
        intake.refuse(RejectReason.OVERSIZE, "a line past its bound", too_long)
    return intake.check_lines([line.text for line in lines if not line.too_long])
