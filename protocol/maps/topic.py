"""Templates of MQTT topics. Pure.

`home/{room}/+/temperature` subscribes to `home/+/+/temperature` and gives the field `room`;
`home/{rest...}` subscribes to `home/#` and gives all that follows in the field `rest`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from edgewake.protocol.names import is_field

TEMPLATE_BYTES_MAX: Final = 512
"""The most bytes of a template: brokers accept topics of 64 KiB, people write short ones."""
SUBSCRIPTION_MAX: Final = 268_435_455
"""The largest subscription identifier (MQTT 5, section 3.8.2.1.2)."""
_NAMED: Final = re.compile(r"\{(\w+)(\.\.\.|…)?\}")
"""Matches a field name, and the dots that let it take all following levels."""


@dataclass(frozen=True, slots=True)
class TopicTemplate:
    """A parsed template."""

    filter: str
    """The topic filter to subscribe to (MQTT 5, section 4.7)."""
    names: tuple[str | None, ...]
    """The field that each level gives; None for a level without a field."""
    has_rest: bool = False
    """Whether the last field takes all following levels."""

    @classmethod
    def parse(cls, text: str, is_name: Callable[[str], bool] = is_field) -> TopicTemplate:
        """Parses a template; `is_name` checks the names of its parts. Raises ValueError."""
        if not text or len(text.encode()) > TEMPLATE_BYTES_MAX or "\0" in text:
            raise ValueError(f"expected 1 to {TEMPLATE_BYTES_MAX} bytes")
        levels, names = [], []
        has_rest = False
        parts = text.split("/")
        for number, part in enumerate(parts):
            named = _NAMED.fullmatch(part)
            if named is None and ("{" in part or "}" in part or (part != "+" and "+" in part)):
                raise ValueError(
                    f"{part!r}: a level is a text, + or {{field}}, the last one may be {{field...}}"
                )
            if "#" in part and (part != "#" or number < len(parts) - 1):
                raise ValueError("#: expected alone, as the last level")
            if named is not None and not is_name(named[1]):
                raise ValueError(f"{named[1]!r}: expected a field name")
            has_rest = named is not None and named[2] is not None
            if has_rest and number < len(parts) - 1:
                raise ValueError(f"{part!r}: expected only as the last level")
            levels.append(_level(part, named))
            names.append(named[1] if named else None)
        given = [name for name in names if name]
        if len(set(given)) < len(given):
            raise ValueError("expected each field in one level only")
        return cls("/".join(levels), tuple(names), has_rest)

    def fields(self, topic: str) -> Mapping[str, str]:
        """Returns the fields of a topic that is known to match this template."""
        levels = topic.split("/", len(self.names) - 1) if self.has_rest else topic.split("/")
        return {
            name: level for name, level in zip(self.names, levels, strict=False) if name is not None
        }

    def match(self, topic: str) -> Mapping[str, str] | None:
        """Returns the fields of a topic; None where it does not match this template."""
        return self.fields(topic) if matches(self.filter, topic) else None


def _level(part: str, named: re.Match[str] | None) -> str:
    if named is None:
        return part
    return "#" if named[2] else "+"


def matches(pattern: str, topic: str) -> bool:
    """Returns whether a topic filter matches a topic. Here `a/#` does not match `a` itself."""
    wanted, levels = pattern.split("/"), topic.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        if len(levels) <= len(wanted):
            return False
    elif len(levels) != len(wanted):
        return False
    if topic.startswith("$") and not pattern.startswith("$"):
        return False
    return all(want in ("+", level) for want, level in zip(wanted, levels, strict=False))


def covers(wide: str, narrow: str) -> bool:
    """Returns whether `wide` matches every topic that `narrow` matches."""
    mine, other = wide.split("/"), narrow.split("/")
    for number, level in enumerate(mine):
        if level == "#":
            return True
        if number >= len(other) or other[number] == "#":
            return False
        if level != "+" and level != other[number]:
            return False
    return len(mine) == len(other)


def overlap(one: str, two: str) -> bool:
    """Returns whether some topic matches both filters."""
    a, b = one.split("/"), two.split("/")
    for number in range(max(len(a), len(b))):
        mine = a[number] if number < len(a) else None
        other = b[number] if number < len(b) else None
        if "#" in (mine, other):
            return True
        if mine is None or other is None:
            return False
        if mine != other and "+" not in (mine, other):
            return False
    return True


def reduced(filters: Sequence[str]) -> tuple[str, ...]:
    """Returns the filters without those that others cover."""
    wanted: list[str] = []
    for one in dict.fromkeys(filters):
        if any(covers(other, one) for other in wanted):
            continue
        wanted = [other for other in wanted if not covers(one, other)]
        wanted.append(one)
    return tuple(wanted)


class Crossing:
    """Overlapping filters: a broker sends a message on their topics once for each subscription.

    Each copy carries the identifier of its subscription (MQTT 5, section 3.8.2.1.2), and one copy
    is taken: that of the filter which sorts first as text. An identifier stands for its filter
    together with the earlier filters that overlap it, and is used only after these were granted. So
    a copy with this identifier proves that the earlier filter received its own copy, whatever was
    subscribed to before and after. A copy with an unknown identifier is taken.
    """

    def __init__(self, filters: Sequence[str]) -> None:
        earlier = {
            one: tuple(sorted(other for other in filters if other < one and overlap(one, other)))
            for one in filters
        }
        self.numbered: Mapping[str, int] = {
            one: _number(one, before) for one, before in sorted(earlier.items()) if before
        }
        """Filter → identifier to subscribe with, in this order, after all others were granted."""
        self._earlier = {self.numbered[one]: earlier[one] for one in self.numbered}

    def is_repeat(self, topic: str, numbers: Sequence[int] | None) -> bool:
        """Returns whether another subscription also delivers the message, and is taken."""
        if not numbers or not self._earlier:
            return False
        for number in numbers:
            earlier = self._earlier.get(number)
            if earlier is None or not any(matches(one, topic) for one in earlier):
                return False
        return True


def _number(one: str, earlier: Sequence[str]) -> int:
    return zlib.crc32("\n".join((one, *earlier)).encode()) % SUBSCRIPTION_MAX + 1
