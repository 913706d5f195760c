"""Devices as operators see them: the agent's reports joined with what the cloud saw. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from typing import Final

from pydantic import BaseModel

from edgewake.protocol.ops.device import DeviceSeen, DeviceState, DeviceStatus

AGENT_OFFLINE_AFTER_MS: Final = 150_000
"""An agent reports every 10 s, and of a large fleet each agent's report is written once a minute:
after two that are missing it is offline, whatever it said last. One whose connection ends is
offline at once, by its last will."""
PLAIN_SILENT_AFTER_MS: Final = 60_000
"""When a plain device that never said what it is has sent nothing for so long it is called silent,
not offline."""
PLAIN_ONLINE_MS: Final = 86_400_000
"""A plain device that said it is online has a last will that says when it goes; after a day without
a word it is called silent all the same."""


REPORTED: Final = frozenset(
    {
        "backlog_readings",
        "backlog_bytes",
        "oldest_unacked_s",
        "lost_readings",
        "epoch",
        "version",
        "settings_version",
    }
)
"""What of an agent's report is shown as it is."""


class Presence(StrEnum):
    """Is the device there?"""

    ONLINE = "online"
    OFFLINE = "offline"
    SILENT = "silent"


class DeviceView(BaseModel):
    """A device."""

    device: str
    state: Presence
    agent: bool
    """Has it an agent of ours, or is it a plain MQTT device?"""
    last_seen: int | None
    """Last record or word of it, ms since 1970 UTC, by the cloud's clock."""
    skew_ms: int | None = None
    """Cloud's clock less the device's, the shortest way included."""
    backlog_readings: int | None = None
    backlog_bytes: int | None = None
    oldest_unacked_s: float | None = None
    lost_readings: int = 0
    streams: list[str] = []
    """Streams that it sent on since this process reads its reports."""
    records: int = 0
    """Records since the report before the last one."""
    epoch: int | None = None
    version: str = ""
    note: str = ""
    """What people say of it."""
    groups: list[str] = []
    settings_version: int | None = None
    """Version of the settings that it received and uses; 0: none."""
    via: str = ""
    """The gateway that its newest reading came by; empty: it sends by itself."""
    former: list[str] = []
    """Gateways that it came by before."""
    reason: str = ""
    """Why it is silent, of a thing behind a gateway."""


def joined(ways: Iterable[DeviceSeen]) -> DeviceSeen | None:
    """Join what was seen of a device on all its ways; None where nothing was.

    It is where its newest reading came from, whatever another gateway had kept and brings late.
    """
    ordered = sorted(ways, key=lambda one: (one.newest or 0, one.last_seen))
    if not ordered:
        return None
    latest = ordered[-1]
    heard = max(ordered, key=lambda one: one.last_seen)
    streams = {name: count for one in ordered for name, count in one.streams.items()}
    return replace(latest, last_seen=heard.last_seen, streams=streams)


def reason(seen: DeviceSeen | None, state: Presence, gateway: Presence | None, *, now: int) -> str:
    """Why a thing behind a gateway is silent; empty for others.

    `gateway`: its state, None where it is unknown.
    """
    if seen is None or not seen.via or state is Presence.ONLINE:
        return ""
    if gateway is not None and gateway is not Presence.ONLINE:
        return f"its gateway {seen.via} is {gateway}"
    silent_s = max(0, now - seen.last_seen) // 1000
    is_there = "is there" if gateway is Presence.ONLINE else "says nothing of itself"
    return f"its gateway {seen.via} {is_there}, and brought nothing of it for {silent_s} s"


def presence(
    status: DeviceStatus | None,
    seen: DeviceSeen | None,
    *,
    now: int,
    gateway: Presence | None = None,
) -> Presence:
    """Online, offline or silent at `now`.

    `gateway`: of the one that a thing is behind; it is silent where that one is away.
    """
    found = _presence(status, seen, now=now)
    is_away = gateway is not None and gateway is not Presence.ONLINE
    return Presence.SILENT if is_away and found is Presence.ONLINE else found


def _presence(status: DeviceStatus | None, seen: DeviceSeen | None, *, now: int) -> Presence:
    reported_at = (status.received_at or 0) if status else 0
    seen_at = seen.last_seen if seen else 0
    if status is None:
        return Presence.SILENT if now - seen_at > PLAIN_SILENT_AFTER_MS else Presence.ONLINE
    if status.plain:
        return _plain_presence(status.state, reported_at, seen_at, now=now)
    if status.state is DeviceState.OFFLINE and seen_at <= reported_at:
        return Presence.OFFLINE
    return (
        Presence.OFFLINE
        if now - max(reported_at, seen_at) > AGENT_OFFLINE_AFTER_MS
        else Presence.ONLINE
    )


def _plain_presence(state: DeviceState, reported_at: int, seen_at: int, *, now: int) -> Presence:
    """What it said holds, until it sends after it said that it goes."""
    if state is DeviceState.OFFLINE and seen_at <= reported_at:
        return Presence.OFFLINE
    return Presence.SILENT if now > _plain_until(state, reported_at, seen_at) else Presence.ONLINE


def _plain_until(state: DeviceState, reported_at: int, seen_at: int) -> int:
    if state is DeviceState.OFFLINE:
        return seen_at + PLAIN_SILENT_AFTER_MS
    return max(reported_at, seen_at) + PLAIN_ONLINE_MS


def quiet_at(status: DeviceStatus | None, seen: DeviceSeen | None) -> int:
    """When a device that is online now becomes offline if nothing more is heard of it.

    In ms since 1970 UTC.
    """
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
    state: Presence,
    streams: Iterable[str],
    *,
    former: Iterable[str] = (),
    why: str = "",
) -> DeviceView:
    """The joined view. `former`: gateways of before; `why`: it is silent."""
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
