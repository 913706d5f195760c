"""The tree of errors. Whose fault one is decides log level, retry and metric.

- EdgewakeError
  - LocalError      our bug, our disk or our configuration: say it and stop
    - ConfigError   a configuration that cannot be used
  - RemoteError     their bytes: count it, keep it as a dead letter, go on
    - Rejected      a message that is refused, with a reason from a closed list
    - CursorError   a cursor that cannot be resumed
    - FilterError   a filter that is refused
    - QueryError    a query file that is refused
  - Unavailable     something is away: retry with back-off
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EdgewakeError(Exception):
    """Something went wrong in Edgewake."""


class LocalError(EdgewakeError):
    """Our own fault: a bug, a disk or a configuration."""


class ConfigError(LocalError):
    """A configuration that cannot be used; the message names file, key, value and expectation."""


class RemoteError(EdgewakeError):
    """Somebody else's bytes are wrong; count it, keep it, go on."""


class Unavailable(EdgewakeError):
    """A part that we need is away; retry with back-off.

    Do not retry before `retry_after_s` seconds where the part said so.
    """

    def __init__(self, message: str = "", *, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RejectReason(StrEnum):
    """Why a message went to the dead letters (the label of the metric, so a closed list)."""

    TOPIC = "topic"  # not a topic of ours, or a bad device or stream name
    OVERSIZE = "oversize"  # payload, field count, reading count or string over its bound
    ENCODING = "encoding"  # not UTF-8, or zstd or packed bytes that cannot be read
    JSON = "json"  # not JSON, or nested too deep
    # JSON, but not a frame or a reading: missing key, unequal columns, nested value
    SHAPE = "shape"
    # an event time of a frame that is not a number of milliseconds from 1970 to 2100
    TIME = "time"
    # a field of a frame of another type than the first reading's, or than an operator decided
    FIELD_TYPE = "field_type"
    FOREIGN_DEVICE = "foreign_device"  # claims another device than the one of its topic
    RESPONSE_TOPIC = "response_topic"  # asks for the answer on another device's topic
    # a stream name that a query has, or that is reserved for what the system says of itself
    NAME = "name"
    # a stream, field, or more in a second than a device, a stream or the catalogue may have
    QUOTA = "quota"
    VERSION = "version"  # a protocol version or content type that we do not speak
    UNKNOWN = "unknown"  # never sent: a device reads it for a reason that is newer than itself


class Rejected(RemoteError):
    """A message is refused.

    `reason` is for machines, the text says what is wrong, where, and what was expected.
    """

    def __init__(self, reason: RejectReason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class CursorError(RemoteError):
    """A cursor that cannot be resumed; `reason` is for machines.

    garbage       no server of any version wrote it
    unverifiable  its key is not known here, its tag is wrong, or a later version wrote it
    subscription  it belongs to none of the streams that are asked for
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class FilterError(RemoteError):
    """A `where=` or `select=` that does not parse, names an unknown function or costs too much."""


@dataclass(frozen=True, slots=True)
class QueryFault:
    """One thing that is wrong with a query file: what was found and what was expected, and where.

    Lines and columns count from 1.
    """

    detail: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        if self.line is None:
            return self.detail
        return f"line {self.line}{'' if self.column is None else f':{self.column}'}: {self.detail}"


class QueryError(RemoteError):
    """A query file that cannot be registered. The text has a line for each fault."""

    def __init__(self, *faults: QueryFault | str) -> None:
        self.faults = tuple(
            QueryFault(fault) if isinstance(fault, str) else fault for fault in faults
        )
        super().__init__("\n".join(map(str, self.faults)))
