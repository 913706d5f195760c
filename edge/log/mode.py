"""The logging modes of the literature, as flags of the one writer.

Pure. What each promises and costs is in docs/logging.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

NOT_LOGGED: Final = "not_logged"
"""Reason of what was accepted and was in memory only when the agent ended."""


class LogMode(StrEnum):
    """The modes of logging."""

    HML = "hml"
    RBML = "rbml"
    SBML = "sbml"
    RBML_SBML = "rbml+sbml"
    NONE = "none"

    @property
    def flags(self) -> LogFlags:
        """The flags by which the writer works."""
        return _FLAGS[self]


@dataclass(frozen=True, slots=True)
class LogFlags:
    """What the writer does in a mode."""

    is_durable: bool = True
    """On the disk, or in memory only."""
    on_receipt: bool = True
    """Logged when it was received; otherwise it waits in memory and is logged when it is sent."""
    is_synchronous: bool = False
    """The source goes on, and processing begins, when it is logged; it waits for no others."""
    copies_sent: bool = False
    """What is sent is logged once more."""


_FLAGS: Final = {
    LogMode.HML: LogFlags(),
    LogMode.RBML: LogFlags(is_synchronous=True),
    LogMode.SBML: LogFlags(on_receipt=False),
    LogMode.RBML_SBML: LogFlags(is_synchronous=True, copies_sent=True),
    LogMode.NONE: LogFlags(is_durable=False),
}
