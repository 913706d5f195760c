"""Who may have to be shown an event of one stream, found by the event's values: one look-up for
each field that anybody is looked up by, however many they are. Pure.

Members with equal keys share one entry a value, so a set of 10,000 devices that a thousand clients
use is kept once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, Final, Generic, TypeVar

from edgewake.cloud.log.decode import DATA, GAP, Event
from edgewake.cloud.log.filters.filter_keys import KNOWN_OF_A_GAP, Keys

ENTRIES_MAX: Final = 250_000
"""Values of all keys of one stream, some 150 bytes each; whose keys find no room is tried with each
event."""
_SCALARS: Final = (str, int, float, bool)

M = TypeVar("M", bound=Hashable)


class EventIndex(Generic[M]):
    """See the module. A member has one key set."""

    def __init__(self) -> None:
        self._groups: dict[Keys, dict[M, None]] = {}
        """At most one for each member."""
        self._by_field: dict[str, dict[Any, tuple[dict[M, None], ...]]] = {}
        """At most ENTRIES_MAX values."""
        self._groups_of: dict[str, int] = {}
        self._entries = 0

    def add(self, member: M, keys: Keys) -> bool:
        """False where there is no room."""
        group = self._groups.get(keys)
        if group is not None:
            group[member] = None
            return True
        if self._entries + len(keys.values) > ENTRIES_MAX:
            return False
        group = self._groups[keys] = {member: None}
        by_value = self._by_field.setdefault(keys.field, {})
        self._groups_of[keys.field] = self._groups_of.get(keys.field, 0) + 1
        self._entries += len(keys.values)
        for value in keys.values:
            by_value[value] = (*by_value.get(value, ()), group)
        return True

    def remove(self, member: M, keys: Keys) -> None:
        """The last member takes the entries with it."""
        group = self._groups.get(keys)
        if group is None or group.pop(member, self) is self or group:
            return
        del self._groups[keys]
        by_value = self._by_field[keys.field]
        self._entries -= len(keys.values)
        for value in keys.values:
            left = tuple(other for other in by_value[value] if other is not group)
            if left:
                by_value[value] = left
            else:
                del by_value[value]
        self._groups_of[keys.field] -= 1
        if not self._groups_of[keys.field]:
            del self._groups_of[keys.field], self._by_field[keys.field]

    def __bool__(self) -> bool:
        """Is anybody in it? A group that nobody is left in is gone."""
        return bool(self._groups)

    def find(self, event: Event) -> Iterator[M]:
        """The members that an event may have to be shown to, each once; all others are not shown
        it.
        """
        for field, by_value in self._by_field.items():
            if _is_told(event, field):
                value = event.fields.get(field)
                if type(value) in _SCALARS:
                    for group in by_value.get(value, ()):
                        yield from group
            else:
                yield from self._all_of(field)

    def _all_of(self, field: str) -> Iterator[M]:
        for keys, group in self._groups.items():
            if keys.field == field:
                yield from group


def _is_told(event: Event, field: str) -> bool:
    """Does the event's own field decide? A watermark is for all; a gap tells of what was lost only
    whose it was.
    """
    if event.kind == DATA:
        return True
    return (
        event.kind == GAP and field in KNOWN_OF_A_GAP and isinstance(event.fields.get(field), str)
    )
