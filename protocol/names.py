"""Names of devices, streams, queries and fields: what is legal.

A name must survive as an MQTT topic level, a Kafka topic, an SQL identifier and a URL path segment.
"""

from __future__ import annotations

import re
from functools import lru_cache

DEVICE_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""1 to 64 characters; no `/ + #` (MQTT 5, section 4.7), nothing to escape in a URL."""

STREAM_PATTERN = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""Streams and queries share one name space. Legal in Kafka (at most 249 characters), SQL and
URLs."""

FIELD_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

SYSTEM_STREAMS = frozenset({"part_status", "late_readings", "shed_readings"})
"""Streams about the system itself. Only its own parts write these, to Kafka; a bridge refuses them
from every device."""
SYSTEM_PREFIX = "ew_"
"""A prefix reserved for such streams, and for a device's notes to itself, which never leave it."""

STREAMS_PER_SUBSCRIPTION_MAX = 16
"""Streams in one subscription; each adds positions to the cursor. More: 422."""

RESERVED_FIELDS = frozenset(
    {
        "stream", "device", "via", "epoch", "frame", "first_frame", "seq", "t", "mode", "sent_at",
        "received_at", "fields", "gap",
        "query", "revision", "final", "window_start", "window_end", "event_time", "clock_flag",
    }
)  # fmt: skip
"""Names of the envelope. A reading is shown flat, its fields beside these, so no field may have
such a name."""


THING = "thing"
"""Field with the name of the thing behind an agent that a reading is of."""
THING_SEQ = "thing_seq"
"""Field with the number that the thing itself gave the reading."""
THING_ONLINE = "thing_online"
"""Field, true or false: the thing says with this reading that it is online, or that it is not."""


def is_device(name: str) -> bool:
    """May `name` be a device id?"""
    return DEVICE_PATTERN.fullmatch(name) is not None


def is_stream(name: str) -> bool:
    """May `name` be a stream or a query?"""
    return STREAM_PATTERN.fullmatch(name) is not None


def is_reserved(name: str) -> bool:
    """Is a stream's name reserved for the system itself?"""
    return name in SYSTEM_STREAMS or name.startswith(SYSTEM_PREFIX)


def is_own(name: str) -> bool:
    """Is it a stream of a device's notes to itself, which is never sent?"""
    return name.startswith(SYSTEM_PREFIX)


FIELD_CHARS_MAX = 64
"""Checked first, so that the cache of `_is_field` holds short names only."""


def is_field(name: str) -> bool:
    """May `name` be a field of a reading?"""
    return len(name) <= FIELD_CHARS_MAX and _is_field(name)


@lru_cache(maxsize=4096)
def _is_field(name: str) -> bool:
    return name not in RESERVED_FIELDS and FIELD_PATTERN.fullmatch(name) is not None
