"""Says what a lane's event time waits for: the detail of its queries while windows stay open.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

SILENT_S: Final = 10.0
"""Seconds without a reading after which this is reported: windows stay open until `idle_s` of
analysis.toml, as more readings may come."""
UNKNOWN: Final = "event time waits: Kafka does not report which records are unread"


def unread(behind: Collection[int], *, is_known: bool, is_late: bool = False) -> str:
    """A sentence on unread records in the partitions that are `behind`, if any.

    `is_known`: does Kafka say how many there are? `is_late`: is event time waiting for more because
    the readings are old (event_time)?
    """
    if not behind:
        return "event time waits for more readings from the same past time" if is_late else ""
    if not is_known:
        return UNKNOWN
    return (
        f"event time waits for unread records in {len(behind)} "
        f"partition{'' if len(behind) == 1 else 's'}"
    )


def silence(
    silent_s: float, idle_s: float, left: Mapping[int, int] | None, *, is_final: bool
) -> str:
    """A sentence on a stream of which nothing was read for this long; empty while that is short.

    `left`: partition → unread records, None where Kafka does not say; with some the stream is not
    silent, for they wait for the next batch. `is_final`: are its last windows?
    """
    if silent_s < min(SILENT_S, idle_s):
        return ""
    if left is None:
        return UNKNOWN
    if any(left.values()):
        return ""
    return "no readings arrive" + (": its last windows are final" if is_final else "")
