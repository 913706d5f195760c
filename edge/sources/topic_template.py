"""Templates of MQTT topics: `home/{room}/+/temperature` subscribes to `home/+/+/temperature` and gives the field `room`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from edgewake.protocol.names import is_field

TEMPLATE_BYTES_MAX: Final = 512
"""Bytes of a template; brokers take topics of 64 KiB, people write short ones."""
_NAMED: Final = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class TopicTemplate:
    """A parsed template."""

    filter: str
    """What is subscribed to (MQTT 5, section 4.7)."""
    names: tuple[str | None, ...]
    """The field that each level gives; None: none."""

    @classmethod
    def parse(cls, text: str) -> TopicTemplate:
        """Raises ValueError."""
        if not text or len(text.encode()) > TEMPLATE_BYTES_MAX or "\0" in text:
            raise ValueError(f"expected 1 to {TEMPLATE_BYTES_MAX} bytes")
        levels, names = [], []
        parts = text.split("/")
        for number, part in enumerate(parts):
            named = _NAMED.fullmatch(part)
            if named is None and ("{" in part or "}" in part or (part != "+" and "+" in part)):
                raise ValueError(f"{part!r}: a level is a text, + or {{field}}")
            if "#" in part and (part != "#" or number < len(parts) - 1):
                raise ValueError("# stands alone at the end")
            if named is not None and not is_field(named[1]):
                raise ValueError(f"{named[1]!r} is no name of a field")
            levels.append("+" if named else part)
            names.append(named[1] if named else None)
        given = [name for name in names if name]
        if len(set(given)) < len(given):
            raise ValueError("one field stands in two levels")
        return cls("/".join(levels), tuple(names))

    def fields(self, topic: str) -> Mapping[str, str]:
        """The fields that a topic gives which the broker sent for this template."""
        return {name: level for name, level in zip(self.names, topic.split("/"), strict=False) if name is not None}
