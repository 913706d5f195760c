"""Which streams a reader may see: what the operations API guards is shown by no other door.

`Reader` is asked in one place (`edgewake.cloud.log.catalogue.Catalogue.seen_by`). A stream that a
reader may not see is answered as one that is not there, so that nobody learns that it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from edgewake.protocol.downlink import ANSWERS, REQUESTS

OPERATOR_STREAMS: Final = frozenset({ANSWERS, REQUESTS})
"""What devices say to those who operate them: the output of commands, and what devices ask for. The
operations API shows both."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads through an access server or a push proxy. As yet there is one: anybody."""

    def may_read(self, stream: str) -> bool:
        """May it see a stream or query of this name?"""
        return stream not in OPERATOR_STREAMS


ANYBODY: Final = Reader()
"""Who sends no proof of who it is."""
