"""The states of the log, and its refusals."""

from __future__ import annotations

from enum import StrEnum

from edgewake.protocol.errors import EdgewakeError, LocalError


class LogClosedError(LocalError):
    """The event log is closed."""


class LogBusyError(EdgewakeError):
    """The queue of this stream is full: wait for room, or drop and count."""


class LogState(StrEnum):
    """The states of the log."""

    GOOD = "good"
    FULL = "disk_full"
    FAILING = "io_error"
    WAITING = "held_by_reader"
    CLOSED = "closed"
