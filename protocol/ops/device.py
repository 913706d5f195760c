"""What is known of a device: what its agent says of itself, and what the cloud saw of it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final, TypeAlias

from edgewake.protocol.plain import Check, Plain, key

LATE_MS: Final = 30_000
"""How long a slow bridge's status of a device may follow another bridge's: other bridges take its
session over after some seconds."""


WAITS_CHARS_MAX: Final = 400
"""Characters of the reason for which a stream waits."""


class DeviceState(StrEnum):
    """What the agent says, or its last will."""

    ONLINE = "online"
    OFFLINE = "offline"


def _whole(number: int) -> int:
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError("expected a number of 64 bits")
    return number


Whole = Annotated[int, Check(_whole)]
"""What JSON is sure to carry: a status comes from a device, which may say anything."""


FieldsSaid: TypeAlias = Mapping[str, Mapping[str, Mapping[str, str]]]
"""Stream → field → `path`, the name that it came by, where that is another one, and `unit`."""
FIELDS_BYTES_MAX: Final = 2048
"""Bytes of what a status says of fields; further fields are left out."""


TimesSaid: TypeAlias = Mapping[str, Mapping[str, Whole]]
"""Stream → how times were found, such as `ts (s)`, or ARRIVAL → readings since the agent began."""
TIMES_BYTES_MAX: Final = 512
"""Bytes of what a status says of times; further streams are left out."""
ARRIVAL: Final = "arrival"
"""A reading had no time: it is of the moment at which the agent got it."""


class DeviceStatus(Plain):
    """A device's status, published on `ew/v1/<device>/status` at birth and every 10 s.

    It is never retained; the last will is offline. A plain device may say `online` and have
    `offline` as its last will.

    Kept by the bridge on `ew.devices`, key `<device>|status`, with `received_at` added: at once
    where it says something new, else up to a minute after the last one in a large fleet.
    """

    device: str
    state: DeviceState
    sent_at: Whole | None = None
    """Device clock, ms since 1970 UTC; None in a last will."""
    connected_at: Whole | None = None
    """Device clock when this connection was begun: tells a return from a repetition, and a late
    last will from one that counts."""
    received_at: Whole | None = None
    """Bridge clock; added by the bridge."""
    epoch: Whole | None = None
    backlog_readings: Whole | None = None
    """Readings accepted and not yet acknowledged by the cloud."""
    backlog_bytes: Whole | None = None
    oldest_unacked_s: float | None = None
    lost_readings: Whole = 0
    """Readings given up since the log was made; each is also a gap."""
    version: str = ""
    """The agent's version."""
    plain: bool = False
    """A plain device said it: its state, and nothing else."""
    settings_version: Whole | None = None
    """The version of the settings from the cloud that it uses; 0: none."""
    waits: str | None = None
    """A stream that the cloud or the broker asked to wait, and why; None: none."""
    times: TimesSaid | None = None
    """How its agent found the times of readings, where that was not `t` in ms; None: all were."""
    fields: FieldsSaid | None = None
    """What its agent knows of fields: the bridge takes it, and keeps it in the catalogue."""


def is_overtaken(new: DeviceStatus, known: DeviceStatus | None) -> bool:
    """Does a status come after a later one of its device?

    Bridges share a broker's messages, so a slow bridge may write what one connection said, its last
    will too, when the device is online again through another. Connections are ordered by
    `connected_at`, and each ends once. Because a device's clock may have been set back, an earlier
    connection that says it is online counts LATE_MS after the last word of a later one.
    """
    if known is None or new.connected_at is None or known.connected_at is None:
        return False
    if new.connected_at == known.connected_at:
        return known.state is DeviceState.OFFLINE and new.state is DeviceState.ONLINE
    if new.connected_at > known.connected_at:
        return False
    return (
        new.state is DeviceState.OFFLINE
        or (new.received_at or 0) - (known.received_at or 0) < LATE_MS
    )


class DeviceSeen(Plain):
    """What the cloud saw of a device: the sequencer's row of `ew.devices`, key `<device>|seen`.

    It writes one at most every 5 s for each device that sends. A thing behind a gateway has one for
    each gateway that sent for it, key `<thing>|seen|<gateway>`: what one of them had kept and
    brings late does not hide the other.
    """

    device: str
    last_seen: Whole
    """Kafka's clock at the last record, ms since 1970 UTC."""
    skew_ms: Whole | None = None
    """Smallest `received_at - sent_at` in the last interval: clock difference plus the shortest
    way; None where never said."""
    streams: dict[str, Whole] = key(default_factory=dict)
    """Stream → its records since the last report."""
    readings: dict[str, Whole] = key(default_factory=dict)
    """Stream → the readings in these records. A gap frame of one frame counts with what it lost:
    only its value tells it from a frame of readings."""
    records: Whole = 0
    """Records of all streams since the last report."""
    via: str = ""
    """The gateway that sent for it; empty: it sent by itself."""
    newest: Whole | None = None
    """The latest event time that came by this gateway, ms, put right where its clock is wrong: the
    thing is where its newest reading came from."""
    is_offline: bool = False
    """By this gateway it said that it is offline (the field THING_ONLINE), and nothing that it
    measured later has come."""


class DeviceGaps(Plain):
    """What gaps the sequencer said of a device: its row of `ew.devices`, key `<device>|gaps`.

    It counts what was said since the row before. The gaps stand on the streams.
    """

    device: str
    at: Whole
    """When they were said, ms since 1970 UTC."""
    opened: Whole = 0
    """Gaps that opened; what is missing may still come."""
    missing: Whole = 0
    """Readings that did not come within a day, and count as lost."""
