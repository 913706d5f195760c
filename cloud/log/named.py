"""The named sets of devices, the publications and the boards that operators keep for readers.

One thread reads them from their tables and the event loop asks for them; each row is a value that
is replaced whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from edgewake.cloud.rights.principal import Action, Principal
from edgewake.protocol.errors import RemoteError
from edgewake.protocol.ops.board import Board
from edgewake.protocol.ops.device_note import DeviceNote
from edgewake.protocol.ops.named_set import NamedSet
from edgewake.protocol.ops.publication import Publication


class UnknownPublication(RemoteError, LookupError):
    """No publication has this name; `near` are names like it."""

    def __init__(self, name: str, near: list[str]) -> None:
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        super().__init__(f"no publication is named {name[:80]!r}{hint}")
        self.name = name
        self.near = near


class Named:
    """The named sets, publications and boards that a server knows."""

    def __init__(self) -> None:
        self.generation = 0
        """Grows with every change of what filters and subscriptions use."""
        self._boards: dict[str, Board] = {}
        self._groups: dict[str, tuple[str, ...]] = {}
        """Device → the groups that operators put it into."""
        self._members: dict[str, set[str]] = {}
        """Group → the devices in it."""
        self._sorted: dict[str, tuple[str, ...]] = {}
        """Group → the devices in it, by name; where it changed, only when it is asked for."""
        self._grouping = Lock()
        self._sets: dict[str, frozenset[str]] = {}
        self._stamps: dict[str, tuple[int, int]] = {}
        """Set → its version, and when it was made."""
        self._publications: dict[str, Publication] = {}

    def take_set(self, name: str, value: bytes | None) -> None:
        """A row of the sets. Raises ValueError for one that cannot be read."""
        if value is None:
            self._sets.pop(name, None)
            self._stamps.pop(name, None)
        else:
            row = NamedSet.model_validate_json(value)
            found, before = frozenset(row.members), self._sets.get(name)
            self._stamps[name] = (row.version, row.changed_at)
            if found == before:
                return
            self._sets[name] = found
        self.generation += 1

    def take_publication(self, name: str, value: bytes | None) -> None:
        """A row of the publications. Raises ValueError for one that cannot be read."""
        if value is None:
            self._publications.pop(name, None)
        else:
            self._publications[name] = Publication.model_validate_json(value)
        self.generation += 1

    def take_board(self, name: str, value: bytes | None) -> None:
        """A row of the boards. Raises ValueError for one that cannot be read."""
        if value is None:
            self._boards.pop(name, None)
        else:
            self._boards[name] = Board.model_validate_json(value)

    def take_note(self, device: str, value: bytes | None) -> None:
        """A row of the notes. Raises ValueError for one that cannot be read."""
        groups = () if value is None else DeviceNote.model_validate_json(value).groups
        with self._grouping:
            before = self._groups.pop(device, ())
            if groups:
                self._groups[device] = groups
            for group in set(before).difference(groups):
                self._members[group].discard(device)
                if not self._members[group]:
                    del self._members[group]
                self._sorted.pop(group, None)
            for group in set(groups).difference(before):
                self._members.setdefault(group, set()).add(device)
                self._sorted.pop(group, None)

    def in_group(self, group: str) -> tuple[str, ...]:
        """The devices in a group, by name."""
        with self._grouping:
            found = self._sorted.get(group, ())
            if not found and group in self._members:
                found = self._sorted[group] = tuple(sorted(self._members[group]))
            return found

    @property
    def boards(self) -> Mapping[str, Board]:
        """All boards, by name."""
        return dict(self._boards)

    def members(self, name: str) -> frozenset[str] | None:
        """The texts in a set; None where there is no such set."""
        return self._sets.get(name)

    def stamps(self, names: frozenset[str]) -> tuple[tuple[int, int], ...]:
        """The version of each of these sets and when it was made, sorted by name.

        Servers that have the same rows return the same; (0, 0) stands for an unknown set.
        """
        return tuple(self._stamps.get(name, (0, 0)) for name in sorted(names))

    def publication(self, name: str) -> Publication | None:
        """A publication as it is now."""
        return self._publications.get(name)

    def publications(self, reader: Principal, action: Action) -> Mapping[str, Publication]:
        """Those that a reader may open."""
        return {
            name: found
            for name, found in list(self._publications.items())
            if reader.may_open(action, name)
        }
