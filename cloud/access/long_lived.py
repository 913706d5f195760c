"""Keeps what open streams are made of out of the walks of Python's garbage collector.

Ten thousand open streams are more than a million objects that live for hours. A walk over all of
them takes over a second, in which nobody is served, and the collector begins one whenever a fourth
more came. So they are frozen (`gc.freeze`) a few hundred streams at a time. What is frozen and not
referred to any more is freed as ever, unless it lies in a circle; circles are looked for once as
many streams have ended as are open.
"""

from __future__ import annotations

import gc
from enum import Enum
from typing import Final

FREEZE_AFTER: Final = 200
"""Streams that were opened since the last time."""
WALK_AFTER_MIN: Final = 20_000
"""Streams that ended since the last walk: some hundreds of megabytes, were they all circles."""
MIDDLE_GENERATION: Final = 1


class Due(Enum):
    """What is done about the collector."""

    NOTHING = "nothing"
    FREEZE = "freeze"
    WALK = "walk"


class LongLived:
    """Counts the streams of one server."""

    def __init__(self) -> None:
        self._opened = 0
        """Streams that were opened before the last freeze."""
        self._ended = 0
        """Streams that had ended at the last walk."""

    def due(self, opened: int, ended: int) -> Due:
        """What is due now, after these numbers of streams were opened and ended since the start."""
        if ended - self._ended >= max(WALK_AFTER_MIN, opened - ended):
            return Due.WALK
        return Due.FREEZE if opened - self._opened >= FREEZE_AFTER else Due.NOTHING

    def look(self, opened: int, ended: int) -> None:
        """Do what is due."""
        match self.due(opened, ended):
            case Due.NOTHING:
                return
            case Due.FREEZE:
                gc.collect(MIDDLE_GENERATION)  # circles of requests that are over
            case Due.WALK:
                gc.unfreeze()
                gc.collect()
                self._ended = ended
        gc.freeze()
        self._opened = opened
