"""Stores named sets and publications with versions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from edgewake.cloud.log.filters.filter import compile_where
from edgewake.cloud.ops.services.versions import is_same, keep, next_stamp
from edgewake.cloud.ops.tables.table_writer import TableWriter
from edgewake.cloud.ops.tables.tables import OpsTables
from edgewake.cloud.rights.principal import OPERATOR_STREAMS
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import FilterError
from edgewake.protocol.ops.named_set import MEMBERS_MAX, NamedSet, SetText
from edgewake.protocol.ops.publication import Publication, PublicationText

SETS_MAX: Final = 500
"""The most sets."""
SETS_MEMBERS_MAX: Final = 200_000
"""The most members of all sets together, some 100 bytes each in every access server."""
PUBLICATIONS_MAX: Final = 500
"""The most publications, a few KB each."""


class _Known:
    """The sets of the tables, for checking a filter."""

    def __init__(self, tables: OpsTables) -> None:
        self._tables = tables

    def members(self, name: str) -> frozenset[str] | None:
        """Returns an empty set for a known name: a check only asks whether it exists."""
        return frozenset() if name in self._tables.sets else None


@dataclass(frozen=True, slots=True)
class NamedDesk:
    """Stores sets and publications; identical content changes nothing.

    Its methods raise Problem or Unavailable.
    """

    writer: TableWriter
    tables: OpsTables
    clock: Clock

    def named_set(self, name: str) -> NamedSet:
        """Returns a set. Raises Problem(404)."""
        found = self.tables.sets.get(name)
        if found is None:
            raise Problem(404, "no_such_set", f"unknown set {name!r}; GET /v1/sets lists them")
        return found

    async def put_set(self, name: str, text: SetText, *, version: int | None, by: str) -> NamedSet:
        """Stores a set and returns its row. `version` is the one that was changed, if known."""
        members = tuple(dict.fromkeys(text.members))
        text = SetText(description=text.description, members=members)
        return await self._keep_set(
            name, lambda before: self._set_after(name, text, before, version=version, by=by)
        )

    async def change_set(
        self, name: str, add: Iterable[str], remove: Iterable[str], *, by: str
    ) -> NamedSet:
        """Adds and removes members of a set, as it is when its turn comes."""
        new, gone = tuple(add), set(remove)

        def change(_: NamedSet | None) -> NamedSet:
            before = self.named_set(name)
            members = tuple(
                dict.fromkeys(one for one in (*before.members, *new) if one not in gone)
            )
            if len(members) > MEMBERS_MAX:
                raise Problem(
                    422, "members", f"{len(members)} members: expected at most {MEMBERS_MAX}"
                )
            text = SetText(description=before.description, members=members)
            return self._set_after(name, text, before, version=None, by=by)

        return await self._keep_set(name, change)

    async def _keep_set(self, name: str, change: Callable[[NamedSet | None], NamedSet]) -> NamedSet:
        return await keep(
            self.writer, topics.SETS, name, lambda: self.tables.sets.get(name), change
        )

    def _set_after(
        self, name: str, text: SetText, before: NamedSet | None, *, version: int | None, by: str
    ) -> NamedSet:
        if before is not None and is_same(before, text):
            return before
        stamp = next_stamp(f"set {name!r}", before, version, by=by, now=self.clock.now_ms())
        self._check_room(name, text.members, before)
        return NamedSet(**text.model_dump(), name=name, **stamp)

    async def remove_set(self, name: str) -> None:
        """Removes a set; filters that use it then match nothing."""
        self.named_set(name)
        await self.writer.write(topics.SETS, name, None)

    def publication(self, name: str) -> Publication:
        """Returns a publication. Raises Problem(404)."""
        found = self.tables.publications.get(name)
        if found is None:
            raise Problem(
                404,
                "no_such_publication",
                f"unknown publication {name!r}; GET /v1/publications lists them",
            )
        return found

    async def put_publication(
        self, name: str, text: PublicationText, *, version: int | None, by: str
    ) -> Publication:
        """Stores a publication and returns its row; its readers reconnect to it."""

        def change(before: Publication | None) -> Publication:
            if before is not None and is_same(before, text):
                return before
            self._check(text)
            what = f"publication {name!r}"
            stamp = next_stamp(what, before, version, by=by, now=self.clock.now_ms())
            if before is None and len(self.tables.publications) >= PUBLICATIONS_MAX:
                raise Problem(
                    409,
                    "too_many_publications",
                    f"{PUBLICATIONS_MAX} publications exist, the most that are kept; remove some",
                )
            return Publication(**dict(text), name=name, **stamp)

        return await keep(
            self.writer,
            topics.PUBLICATIONS,
            name,
            lambda: self.tables.publications.get(name),
            change,
        )

    async def remove_publication(self, name: str) -> None:
        """Removes a publication and disconnects its readers."""
        self.publication(name)
        await self.writer.write(topics.PUBLICATIONS, name, None)

    def _check(self, text: PublicationText) -> None:
        hidden = sorted(OPERATOR_STREAMS.intersection(text.streams))
        if hidden:
            raise Problem(422, "streams", f"streams: {hidden[0]!r} is for operators alone")
        if text.where is None:
            return
        known = _Known(self.tables)
        try:
            found = compile_where(text.where, known)
        except FilterError as error:
            raise Problem(422, "filter", str(error)) from error
        missing = sorted(name for name in found.sets if known.members(name) is None)
        if missing:
            raise Problem(422, "filter", f"where: no set is named {missing[0]!r}; create it first")

    def _check_room(self, name: str, members: tuple[str, ...], before: NamedSet | None) -> None:
        if before is None and len(self.tables.sets) >= SETS_MAX:
            raise Problem(
                409,
                "too_many_sets",
                f"{SETS_MAX} sets exist already, the most that are kept; remove some",
            )
        others = sum(len(one.members) for key, one in self.tables.sets.items() if key != name)
        if others + len(members) > SETS_MEMBERS_MAX:
            raise Problem(
                409,
                "too_many_members",
                f"{others + len(members)} members in all sets together: expected at most "
                f"{SETS_MEMBERS_MAX}",
            )
