"""What one principal sees of one stream: which devices, and which fields of theirs. Pure.

Each part comes from one grant. An event is seen where one part has its device, with the fields of
all parts that have it; the envelope of an event (its stream, device, order and times) is always
seen with it. An event that names no device is seen through parts that have all devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from edgewake.cloud.rights.names import Names
from edgewake.protocol.names import RESERVED_FIELDS

READING_ENVELOPE: Final = RESERVED_FIELDS
_EVERY: Final = Names.of(["*"])
"""Every field; of devices it would leave out what names none."""
NAMES_DEVICES: Final = frozenset({"first_device", "first_via", "other_unit"})
"""What the catalogue says of a field that names devices (`protocol/frames/stream.py`)."""
RESULT_ENVELOPE: Final = RESERVED_FIELDS | {"complete", "withdrawn", "window_number"}


@dataclass(frozen=True, slots=True)
class Part:
    """Part of a scope; None: all there are."""

    devices: Names | None
    fields: Names | None


@dataclass(frozen=True, slots=True)
class Scope:
    """The devices and fields of a stream that a principal may see; without parts nothing."""

    parts: tuple[Part, ...]

    def sees(self, device: object) -> bool:
        """Is anything of this device seen? None: what names no device."""
        return any(part.devices is None or device in part.devices for part in self.parts)

    def sees_value(self, device: str | None, field: str) -> bool:
        """Is this field of this device seen? None: of all together."""
        return any(
            (part.devices is None or device in part.devices)
            and (part.fields is None or field in part.fields)
            for part in self.parts
        )

    @property
    def named_devices(self) -> frozenset[str] | None:
        """The only devices that are seen; None: which they are a pattern says, or all are."""
        found = [part.devices for part in self.parts]
        if any(devices is None or devices.patterns for devices in found):
            return None
        return frozenset(name for devices in found if devices is not None for name in devices.exact)

    def covers(self, other: Scope) -> bool:
        """Does it show all that the other one shows?"""
        return all(self._covers(part) for part in other.parts)

    def _covers(self, part: Part) -> bool:
        fields = _EVERY if part.fields is None else part.fields
        if any(_has(one.devices, part.devices) and _has(one.fields, fields) for one in self.parts):
            return True
        # A pattern is looked at as the name of a device: what has it has all that it stands for.
        devices: tuple[str | None, ...] = (None,)
        if part.devices is not None:
            devices = (*part.devices.exact, *part.devices.patterns)
        return all(
            self.sees(device) and _has(self._fields_of(device), fields) for device in devices
        )

    def _fields_of(self, device: str | None) -> Names | None:
        """The fields that are seen of a device; None: all."""
        found = [
            part.fields for part in self.parts if part.devices is None or device in part.devices
        ]
        if any(fields is None for fields in found):
            return None
        return Names.of(
            name
            for fields in found
            if fields is not None
            for name in (*fields.exact, *fields.patterns)
        )

    def cut(self, event: Mapping[str, Any], *, is_result: bool) -> Mapping[str, Any] | None:
        """The visible fields of a data event, in their order; None where the event is hidden.

        The event itself where all are visible.
        """
        device = event.get("device")
        shown: list[Names] = []
        is_seen = False
        for part in self.parts:
            if part.devices is None or device in part.devices:
                if part.fields is None:
                    return event
                is_seen = True
                shown.append(part.fields)
        if not is_seen:
            return None
        always = RESULT_ENVELOPE if is_result else READING_ENVELOPE
        return {
            name: value
            for name, value in event.items()
            if name in always or any(name in fields for fields in shown)
        }

    def cut_told(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """What the catalogue says of a field, without what names devices to who sees some."""
        is_whole = self.sees(None)
        return {name: said for name, said in told.items() if is_whole or name not in NAMES_DEVICES}

    def shows_field(self, name: str) -> bool:
        """Is this field seen of any device?"""
        return any(
            part.fields is None or name in part.fields or name in RESULT_ENVELOPE
            for part in self.parts
        )

    def shows_field_of_all(self, name: str) -> bool:
        """Is this field seen of every device that is?"""
        return name in READING_ENVELOPE or all(
            part.fields is None or name in part.fields for part in self.parts
        )


def _has(names: Names | None, others: Names | None) -> bool:
    """Are all of the others among these? None: all there are."""
    return names is None or (others is not None and names.covers(others))


Scopes: TypeAlias = tuple[Scope | None, ...]
"""Scopes of a subscription's streams, sorted by name: None where all of a stream is seen; empty
where all of each is.
"""


def normal(scopes: Sequence[Scope | None]) -> Scopes:
    """Equal for all who see the same."""
    return tuple(scopes) if any(scope is not None for scope in scopes) else ()
