"""What can be joined with readings: the columns of a table, and where its rows are.

Pure, and without Spark: checks of queries need it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from edgewake.cloud.queries.terms.functions import NUMBER, STRING, TIME, Kind
from edgewake.protocol import topics
from edgewake.protocol.frames.stream import Stream

DEVICES: Final = "devices"
"""The table of `ew.devices`, where no stream is called so."""
DEVICE_COLUMNS: Final[Mapping[str, Kind]] = {
    "state": STRING,
    "version": STRING,
    "epoch": NUMBER,
    "settings_version": NUMBER,
    "backlog_readings": NUMBER,
    "lost_readings": NUMBER,
}
"""What an agent says of itself (protocol/ops/device.py); a row holds since a bridge received it."""
_COMMON: Final[Mapping[str, Kind]] = {"device": STRING, "event_time": TIME}


def columns_of(table: str, streams: Mapping[str, Stream]) -> Mapping[str, Kind] | None:
    """Column → type of a table; None for an unknown stream.

    `event_time` is since when a row holds.
    """
    if table in streams:
        return {**{name: info.type for name, info in streams[table].fields.items()}, **_COMMON}
    return {**DEVICE_COLUMNS, **_COMMON} if table == DEVICES else None


def topic_of(table: str, columns: Mapping[str, Kind]) -> str:
    """Where its rows are. A stream may be called `devices`, too; then it has columns of its own."""
    is_registry = table == DEVICES and columns.keys() <= {*DEVICE_COLUMNS, *_COMMON}
    return topics.DEVICES if is_registry else topics.stream_topic(table)
