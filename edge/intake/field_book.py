"""The fields of one of a device's streams: original and final names, and types.

The first value decides a field's type, unless the configuration does; null, and a word for no
value such as `unavailable` or `n/a`, decide nothing, and are null. A value of
another type costs itself: it is null in its reading, and stands beside it as text in the field
`<name>_odd`; all others go on. Kept in the log, so a name and a type stay what they are over a
restart. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from edgewake.protocol.frames.field_names import (
    NAMES_MAX,
    ODD,
    ODD_CHARS_MAX,
    UNIT_CHARS_MAX,
    WORDS_CHARS_MAX,
    Names,
)
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.field_values import (
    as_declared,
    is_no_value,
    is_nothing,
    type_of_value,
)
from edgewake.protocol.frames.frame import Scalar
from edgewake.protocol.ops.device import ARRIVAL, FIELDS_BYTES_MAX, TIMES_BYTES_MAX

ALL: Final = "*"
"""In a declaration: every field that is not named."""
TIME_WAYS_MAX: Final = 8
"""Ways in which the times of a stream were found that are counted by themselves: one for each field
that a device calls its time. Of further ones the count is of all together."""
_LETTERS: Final = {kind: kind.value[0] for kind in FieldType}
_CHARS_MAX: Final = {
    "unit": UNIT_CHARS_MAX, "label": WORDS_CHARS_MAX, "classes": WORDS_CHARS_MAX,
}  # fmt: skip
_KINDS: Final = {letter: kind for kind, letter in _LETTERS.items()}


class FieldBook:
    """The fields of one stream."""

    def __init__(
        self,
        kept: str | None = None,
        declared: Mapping[str, FieldType] | None = None,
        renamed: Mapping[str, str] | None = None,
    ) -> None:
        """`kept`: what `encode` wrote; what cannot be read is forgotten. `renamed`: path → name."""
        self._declared = dict(declared or {})
        known: dict[str, str] = {}
        self._kinds: dict[str, FieldType] = {}
        for path, (name, letter) in _decoded(kept).items():
            known[path] = name
            if letter in _KINDS:
                self._kinds[name] = _KINDS[letter]
        wanted = dict(renamed or {})
        taken = set(wanted.values())
        known = {path: name for path, name in known.items() if name not in taken} | wanted
        self.names = Names(known)
        self.arrived = 0
        """Readings since the start that had no time of their own."""
        self._times: dict[str, int] = {}
        """How the times of others were found, where that was not `t` in ms → readings."""
        self._words: dict[str, dict[str, str]] = {}
        """Field → what is known of it: `unit`, `label`, `classes`; of NAMES_MAX fields."""
        self.version = 0
        """Grows whenever a field's type becomes known."""
        self._kept = self._state
        """What the log has."""

    def encode(self) -> str:
        """The book in the form that the log keeps."""
        known = self.names.known()
        return orjson.dumps(
            {
                path: [name, _LETTERS.get(self._kinds[name], "") if name in self._kinds else ""]
                for path, name in known.items()
            }
        ).decode()

    @property
    def _state(self) -> tuple[int, int]:
        """Another one whenever there is something new to keep."""
        return self.version, len(self.names)

    @property
    def has_news(self) -> bool:
        """Is there something that the log does not have?"""
        return self._state != self._kept

    def kept(self) -> None:
        """It is on its way into the log."""
        self._kept = self._state

    def renamed(self) -> dict[str, str]:
        """Our name → the path it came by, where it is another."""
        return {
            name: path
            for path, name in self.names.known().items()
            if name != path.replace(".", "_")
        }

    def note(self, words: Mapping[str, Mapping[str, str]]) -> None:
        """Remember what a source says of fields: the first word stays.

        `words`: path → its `unit`, `label` and `classes`.
        """
        for path, said in words.items():
            name = self.names.of(path)
            if name not in self._words and len(self._words) >= NAMES_MAX:
                continue
            known = self._words.setdefault(name, {})
            for what, text in said.items():
                if len(text) <= _CHARS_MAX.get(what, 0):
                    known.setdefault(what, text)

    def said(self) -> dict[str, dict[str, str]]:
        """What the cloud is told of fields: original names, units and the like."""
        found = {name: {"path": path} for name, path in self.renamed().items()}
        for name, words in self._words.items():
            if words:
                found.setdefault(name, {}).update(words)
        return found

    def timed(self, way: str) -> None:
        """The time of a reading was found so."""
        known = way in self._times or len(self._times) < TIME_WAYS_MAX
        place = way if known else "others"
        self._times[place] = self._times.get(place, 0) + 1

    def times(self) -> dict[str, int]:
        """How the times of readings were found → how many since the start."""
        return self._times | ({ARRIVAL: self.arrived} if self.arrived else {})

    def is_own(self, name: str) -> bool:
        """Is a legal name its own, and nobody else's? It is from now on."""
        return self.names.of(name) == name

    def kinds(self, names: Sequence[str]) -> tuple[FieldType | None, ...] | None:
        """Types of these fields, None where a type is not known yet.

        None for all: they are declared, so each value must be checked.
        """
        if self._declared:
            return None
        return tuple(map(self._kinds.get, names))

    def learn(self, name: str, kind: FieldType) -> None:
        """The first value of a field."""
        self._kinds[name] = kind
        self.version += 1

    def decide(self, types: Mapping[str, FieldType]) -> Sequence[str]:
        """An operator has decided these types; returns the fields that had another one.

        What the configuration declares stays.
        """
        declared = self._declared
        changed = [
            name
            for name, kind in types.items()
            if ALL not in declared and name not in declared and self._kinds.get(name) is not kind
        ]
        for name in changed:
            self.learn(name, types[name])
        return changed

    def sound(self, fields: dict[str, Scalar]) -> tuple[dict[str, Scalar], Sequence[str]]:
        """Convert the fields to their types.

        Return them, and the names of those with an odd value.
        """
        odd: list[str] = []
        found: dict[str, Scalar] = {}
        for name, value in fields.items():
            sound = self._sound(name, value)
            found[name] = sound
            if sound is None and value is not None and not is_no_value(value, self._kind(name)):
                odd.append(name)
        for name in odd:
            path = name + ODD
            while self.names.of(path) in found:  # the device has a field of that name itself
                path += "_"
            found[self.names.of(path)] = str(fields[name])[:ODD_CHARS_MAX]
        return found, odd

    def _kind(self, name: str) -> FieldType | None:
        return self._declared.get(name) or self._declared.get(ALL) or self._kinds.get(name)

    def _sound(self, name: str, value: Scalar) -> Scalar:
        declared = self._declared.get(name) or self._declared.get(ALL)
        if declared is not None:
            try:
                return as_declared(value, declared)
            except ValueError:
                return None
        kind, known = type_of_value(value), self._kinds.get(name)
        if known is None and kind is not None and not is_nothing(value):
            self.learn(name, kind)
            known = kind
        return value if kind is known or kind is None else None


def fields_said(books: Mapping[str, FieldBook]) -> dict[str, dict[str, dict[str, str]]]:
    """What a status says of the fields of these streams, up to FIELDS_BYTES_MAX."""
    left = FIELDS_BYTES_MAX
    found: dict[str, dict[str, dict[str, str]]] = {}
    for stream, book in sorted(books.items()):
        for name, known in book.said().items():
            size = len(orjson.dumps({stream: {name: known}}))
            if size > left:  # perhaps a shorter one fits
                continue
            left -= size
            found.setdefault(stream, {})[name] = known
    return found


def times_said(books: Mapping[str, FieldBook]) -> dict[str, dict[str, int]] | None:
    """What a status says of how times were found, up to TIMES_BYTES_MAX; None: nothing."""
    left = TIMES_BYTES_MAX
    found: dict[str, dict[str, int]] = {}
    for stream, book in sorted(books.items()):
        times = book.times()
        size = len(orjson.dumps({stream: times}))
        if times and size <= left:
            left -= size
            found[stream] = times
    return found or None


def _decoded(text: str | None) -> dict[str, tuple[str, str]]:
    try:
        found: Any = orjson.loads(text) if text else {}
        return {str(path): (str(name), str(letter)) for path, (name, letter) in found.items()}
    except (ValueError, AttributeError, TypeError):
        return {}
