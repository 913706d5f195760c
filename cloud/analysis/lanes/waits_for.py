"""What a lane's event time waits for, in words: the detail of its queries while windows stand.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

SILENT_S: Final = 10.0
"""Seconds without a reading after which it is said: windows stand until `idle_s` of analysis.toml,
as nobody knows whether more comes."""


def unread(behind: Collection[int], *, is_known: bool, is_late: bool = False) -> str:
    """A sentence on unread records in the partitions that are `behind`, if any.

    `is_known`: did Kafka say how many they are? `is_late`: or does event time wait for more,
    because the readings are of long ago (event_time)?
    """
    if not behind:
        return "event time waits for what belongs to readings of long ago" if is_late else ""
    if not is_known:
        return "event time stands: Kafka does not say what is unread"
    return (
        f"event time waits for what is unread in {len(behind)} "
        f"partition{'' if len(behind) == 1 else 's'}"
    )


def silence(silent_s: float, idle_s: float) -> str:
    """For readings, of which none came for so long; empty while that is nothing to speak of."""
    if silent_s < min(SILENT_S, idle_s):
        return ""
    return "no reading comes" + ("" if silent_s < idle_s else ": its last windows are final")
