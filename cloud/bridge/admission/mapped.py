"""Turns messages in foreign formats into messages of plain devices, the only kind behind it.

No I/O.

A message may give several readings; each is a message of its own device and stream from here on,
with its own dead letter where it is refused. What no map can read is refused with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final, NamedTuple

import mqtt5
import orjson

from edgewake.cloud.bridge.admission.records import is_status
from edgewake.protocol import topics
from edgewake.protocol.discovery.home_assistant import STREAMS as DISCOVERY
from edgewake.protocol.discovery.home_assistant import Described, described
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.maps.applying import (
    NO_UNITS,
    Mapped,
    ReadEvent,
    Refusal,
    apply,
    device_of,
)
from edgewake.protocol.maps.contents import binary_event
from edgewake.protocol.maps.path import MISSING
from edgewake.protocol.maps.rule import Maps
from edgewake.protocol.maps.topic import Crossing, reduced
from edgewake.protocol.mqtt import Unreadable
from edgewake.protocol.ops.device import DeviceState

OWN: Final = (f"{topics.ROOT}/", f"/{topics.ROOT}/")
"""How topics begin that are ours, also with a slash too many."""


ANNOUNCED_MAX: Final = 10_000
"""Announcements of fields that are not there yet, some MB. Devices repeat what they announce."""


class Part(NamedTuple):
    """A reading of a message, or what gave none."""

    packet: mqtt5.PublishPacket | Unreadable
    refusal: Rejected | None = None
    units: Mapping[str, str] = NO_UNITS
    """Path of a field → its unit, as far as the map or the device says them."""


def is_mapped(topic: str) -> bool:
    """Is it a topic that maps are asked for?"""
    return not topic.startswith(OWN)


class Mapper:
    """Maps messages by the current map file."""

    def __init__(self, maps: Maps, prefix: str, devices: Sequence[str] = ()) -> None:
        """`devices`: patterns of names that the maps may give, with the prefix; none: any."""
        self._prefix = prefix
        self._devices = devices
        self.announced: dict[tuple[str, str, str], Described] = {}
        """What devices announced of fields that the catalogue has not been told yet, by device,
        stream and path: at most ANNOUNCED_MAX, the last ones."""
        self.follow(maps)

    def follow(self, maps: Maps) -> None:
        """Map by these from now on."""
        self.maps = maps
        self._crossing = Crossing(maps.filters)

    @property
    def streams(self) -> frozenset[str]:
        """Streams that the maps name, as far as no message does."""
        named = (one.stream.constant for one in self.maps.maps if one.stream is not None)
        return frozenset(one for one in named if one is not None)

    @property
    def kept(self) -> tuple[str, ...]:
        """Topic filters of what brokers keep for who comes later: presence and announcements."""
        wanted = (
            one.topic.filter
            for one in self.maps.maps
            if one.presence is not None
            or (one.stream is not None and one.stream.constant in DISCOVERY)
        )
        return reduced(list(wanted))

    def words(self, packet: mqtt5.PublishPacket, received_at: int) -> list[Part]:
        """What a retained message says of presence; what it announces is noted.

        Its readings are left out: they are of before, and came when they were made.
        """
        return [
            part
            for part in self.parts(packet, received_at)
            if part.refusal is None and is_status(part.packet.topic)
        ]

    def is_repeat(self, packet: mqtt5.PublishPacket | Unreadable) -> bool:
        """Comes the message once more, by another filter of the maps?"""
        return isinstance(packet, mqtt5.PublishPacket) and self._crossing.is_repeat(
            packet.topic, packet.subscription_ids
        )

    def device_of(self, topic: str) -> str:
        """The device that a topic names; empty where it does not."""
        return device_of(self.maps, topic, self._prefix)

    def parts(self, packet: mqtt5.PublishPacket | Unreadable, received_at: int) -> list[Part]:
        """What a message gives, in order; nothing where it is to be ignored."""
        if isinstance(packet, Unreadable):
            return [Part(packet, Rejected(RejectReason.OVERSIZE, packet.why))]
        properties = packet.user_properties
        if not properties:  # no CloudEvent in binary mode
            return self.parts_of(packet, received_at)
        event = partial(binary_event, packet.payload, packet.content_type, properties)
        return self.parts_of(packet, received_at, event=event)

    def parts_of(
        self,
        packet: mqtt5.PublishPacket,
        received_at: int,
        document: Any = MISSING,
        device: str = "",
        event: ReadEvent | None = None,
    ) -> list[Part]:
        """Split a message like `parts`.

        `document`, `event`: see `apply`; `device`: the owner of all
        readings, whatever they name; empty: the map names it.
        """
        outcome = apply(
            self.maps,
            packet.topic,
            packet.payload,
            received_at,
            prefix=self._prefix,
            document=document,
            event=event,
        )
        readings = outcome.readings
        if device:
            readings = [one._replace(device=device) for one in readings]
        parts = [self._checked(packet, one) for one in readings]
        for one in readings:
            if one.stream in DISCOVERY:
                self._note_announced(one, packet.topic, received_at)
            if one.is_there is not None and self._may_name(one.device):
                parts.append(_status(one))
        for refusal in outcome.refused:
            parts.append(_refused(packet, refusal))
        return parts

    def _note_announced(self, one: Mapped, topic: str, now_ms: int) -> None:
        found = described(self.maps, one, now_ms, topic=topic, prefix=self._prefix)
        if found is None or not found.stream or not self._may_name(found.device):
            return
        key = (found.device, found.stream, found.path)
        self.announced.pop(key, None)
        if len(self.announced) >= ANNOUNCED_MAX:
            del self.announced[next(iter(self.announced))]
        self.announced[key] = found

    def _may_name(self, device: str) -> bool:
        return not self._devices or any(fnmatchcase(device, one) for one in self._devices)

    def _checked(self, packet: mqtt5.PublishPacket, reading: Mapped) -> Part:
        part = _part(packet, reading)
        if part.refusal is not None or self._may_name(reading.device):
            return part
        why = (
            f"the map gives the device {reading.device!r}: expected one of {list(self._devices)} "
            "(maps.devices in bridge.toml)"
        )
        kept = mqtt5.PublishPacket(packet.topic, orjson.dumps(reading.body))
        return Part(kept, Rejected(RejectReason.FOREIGN_DEVICE, why))


def _part(packet: mqtt5.PublishPacket, reading: Mapped) -> Part:
    try:
        payload = orjson.dumps(reading.body)
    except TypeError as error:
        return Part(packet, Rejected(RejectReason.SHAPE, f"a value that JSON cannot hold: {error}"))
    packet = mqtt5.PublishPacket(topics.up(reading.device, reading.stream), payload)
    return Part(packet, units=reading.units)


def _status(reading: Mapped) -> Part:
    """The device's own word for its presence, as a plain device says it."""
    state = DeviceState.ONLINE if reading.is_there else DeviceState.OFFLINE
    return Part(mqtt5.PublishPacket(topics.status(reading.device), state.value.encode()))


def _refused(packet: mqtt5.PublishPacket, refusal: Refusal) -> Part:
    """An item by itself, as JSON, where it is not the whole message."""
    if refusal.item is None:
        return Part(packet, refusal.why)
    item = refusal.item
    try:
        payload = item if isinstance(item, bytes) else orjson.dumps(item)
    except TypeError:
        payload = packet.payload
    return Part(mqtt5.PublishPacket(packet.topic, payload), refusal.why)
