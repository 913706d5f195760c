"""Makes views of devices: an agent's reports joined with what the cloud saw. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from typing import Final

from pydantic import BaseModel

from edgewake.protocol.ops.device import DeviceSeen, DeviceState, DeviceStatus

AGENT_OFFLINE_AFTER_MS: Final = 150_000
"""After two missing reports an agent is offline, whatever it reported last. An agent reports every
10 s, and in a large fleet each report is written once a minute. When its connection ends, its last
will says offline immediately."""
PLAIN_SILENT_AFTER_MS: Final = 60_000
"""Time without a record after which a plain device without presence is silent; it is offline only
where it said so."""
PLAIN_ONLINE_MS: Final = 86_400_000
"""Time without a record after which a plain device is silent although it said that it is online,
and its last will would say that it is offline."""


REPORTED: Final = frozenset(
    {
        "backlog_readings",
        "backlog_bytes",
        "oldest_unacked_s",
        "lost_readings",
        "epoch",
        "version",
        "settings_version",
        "waits",
    }
)
"""Fields of an agent's report that are shown unchanged."""


class DevicePresence(StrEnum):
    """Whether a device is online, offline or silent."""

    ONLINE = "online"
    OFFLINE = "offline"
    SILENT = "silent"


class DeviceView(BaseModel):
    """A device as operators see it."""

    device: str
    state: DevicePresence
    agent: bool
    """Whether it has an agent, or is a plain device."""
    last_seen: int | None
    """When its last record or report arrived, ms since 1970 UTC, by the cloud's clock."""
    skew_ms: int | None = None
    """The cloud's clock minus the device's, including the shortest transit time."""
    backlog_readings: int | None = None
    backlog_bytes: int | None = None
    oldest_unacked_s: float | None = None
    lost_readings: int = 0
    streams: list[str] = []
    """Streams that it sent on since this process started."""
    records: int = 0
    """Number of records between its last two reports."""
    epoch: int | None = None
    version: str = ""
    note: str = ""
    """People's note on it."""
    groups: list[str] = []
    settings_version: int | None = None
    """Version of the remote settings that it uses; 0: none."""
    waits: str | None = None
    """A stream that the cloud or the broker asked to wait, and why."""
    via: str = ""
    """The gateway that brought its newest reading; empty: its own connection."""
    former: list[str] = []
    """Gateways that brought its readings before."""
    reason: str = ""
    """Why a thing behind a gateway is silent or offline."""


def joined(ways: Iterable[DeviceSeen]) -> DeviceSeen | None:
    """Joins the reports on a device from all gateways; None without any.

    The gateway of its newest reading counts, even if another one delivers a backlog later.
    """
    ordered = sorted(ways, key=lambda one: (one.newest or 0, one.last_seen))
    if not ordered:
        return None
    latest = ordered[-1]
    heard = max(ordered, key=lambda one: one.last_seen)
    streams = {name: count for one in ordered for name, count in one.streams.items()}
    return replace(latest, last_seen=heard.last_seen, streams=streams)


def reason(
    seen: DeviceSeen | None, state: DevicePresence, gateway: DevicePresence | None, *, now: int
) -> str:
    """Explains why a thing behind a gateway is silent or offline; empty for other devices.

    `gateway` is the gateway's presence, None where it is unknown.
    """
    if seen is None or not seen.via or state is DevicePresence.ONLINE:
        return ""
    if state is DevicePresence.OFFLINE and seen.is_offline:
        return f"it said so by its gateway {seen.via}"
    if gateway is not None and gateway is not DevicePresence.ONLINE:
        return f"its gateway {seen.via} is {gateway}"
    silent_s = max(0, now - seen.last_seen) // 1000
    is_there = "is there" if gateway is DevicePresence.ONLINE else "says nothing of itself"
    return f"its gateway {seen.via} {is_there}, and brought nothing of it for {silent_s} s"


def presence(
    status: DeviceStatus | None,
    seen: DeviceSeen | None,
    *,
    now: int,
    gateway: DevicePresence | None = None,
) -> DevicePresence:
    """Decides the presence at `now`.

    `gateway` is that of the gateway that a thing is behind; while it is away, the thing is silent.
    """
    found = _presence(status, seen, now=now)
    is_away = gateway is not None and gateway is not DevicePresence.ONLINE
    return DevicePresence.SILENT if is_away and found is DevicePresence.ONLINE else found


def _presence(status: DeviceStatus | None, seen: DeviceSeen | None, *, now: int) -> DevicePresence:
    reported_at = (status.received_at or 0) if status else 0
    seen_at = seen.last_seen if seen else 0
    if seen is not None and seen.is_offline and seen_at >= reported_at:
        return DevicePresence.OFFLINE
    if status is None:
        return (
            DevicePresence.SILENT
            if now - seen_at > PLAIN_SILENT_AFTER_MS
            else DevicePresence.ONLINE
        )
    if status.plain:
        return _plain_presence(status.state, reported_at, seen_at, now=now)
    if status.state is DeviceState.OFFLINE and seen_at <= reported_at:
        return DevicePresence.OFFLINE
    return (
        DevicePresence.OFFLINE
        if now - max(reported_at, seen_at) > AGENT_OFFLINE_AFTER_MS
        else DevicePresence.ONLINE
    )


def _plain_presence(
    state: DeviceState, reported_at: int, seen_at: int, *, now: int
) -> DevicePresence:
    """Uses what a device said of itself, unless it sent a record after saying offline."""
    if state is DeviceState.OFFLINE and seen_at <= reported_at:
        return DevicePresence.OFFLINE
    return (
        DevicePresence.SILENT
        if now > _plain_until(state, reported_at, seen_at)
        else DevicePresence.ONLINE
    )


def _plain_until(state: DeviceState, reported_at: int, seen_at: int) -> int:
    if state is DeviceState.OFFLINE:
        return seen_at + PLAIN_SILENT_AFTER_MS
    return max(reported_at, seen_at) + PLAIN_ONLINE_MS


def quiet_at(status: DeviceStatus | None, seen: DeviceSeen | None) -> int:
    """Returns when an online device becomes offline or silent unless it is heard of, in ms."""
    reported_at = (status.received_at or 0) if status else 0
    seen_at = seen.last_seen if seen else 0
    if status is not None and status.plain:
        return _plain_until(status.state, reported_at, seen_at)
    return (
        seen_at + PLAIN_SILENT_AFTER_MS
        if status is None
        else max(reported_at, seen_at) + AGENT_OFFLINE_AFTER_MS
    )


def view(
    device: str,
    status: DeviceStatus | None,
    seen: DeviceSeen | None,
    state: DevicePresence,
    streams: Iterable[str],
    *,
    former: Iterable[str] = (),
    why: str = "",
) -> DeviceView:
    """Joins a view. `former` are earlier gateways; `why` explains why it is silent."""
    known: dict[str, object] = {"former": sorted(former), "reason": why}
    if seen is not None:
        known |= {"skew_ms": seen.skew_ms, "records": seen.records, "via": seen.via}
    if status is not None:
        known |= {name: getattr(status, name) for name in REPORTED}
    times = [
        t
        for t in (status.received_at if status else None, seen.last_seen if seen else None)
        if t is not None
    ]
    return DeviceView.model_validate(
        {
            "device": device,
            "state": state,
            "streams": sorted(streams),
            "agent": status is not None and not status.plain,
            "last_seen": max(times, default=None),
            **known,
        }
    )
