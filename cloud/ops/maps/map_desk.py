"""Keeps the versions of the maps that all bridges use.

Maps are compiled here as at a bridge before they are kept: what a bridge could not use is refused
with line and key, and no bridge hears of it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from edgewake.cloud.ops.services.versions import is_same, next_stamp
from edgewake.cloud.ops.tables.table_writer import TableWriter
from edgewake.cloud.ops.tables.tables import OpsTables
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.maps.compiling import compile_maps
from edgewake.protocol.ops.pushed_maps import KEPT, MapsText, PushedMaps

WHAT: Final = "maps"
"""What is kept, in refusals."""


@dataclass(frozen=True, slots=True)
class MapDesk:
    """Its methods raise Problem or Unavailable."""

    writer: TableWriter
    tables: OpsTables
    clock: Clock
    turns: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Two that push at once get a version each."""

    def versions(self) -> list[PushedMaps]:
        """All that are kept, the newest first."""
        return sorted(self.tables.maps.values(), key=lambda one: one.version, reverse=True)

    def version(self, version: int) -> PushedMaps:
        """One version. Raises Problem(404)."""
        found = self.tables.maps.get(str(version))
        if found is None:
            raise Problem(
                404, "no_such_version", f"maps: no version {version}; GET /v1/maps lists them"
            )
        return found

    async def push(self, text: MapsText, *, version: int | None, by: str) -> PushedMaps:
        """Keeps maps as the next version, for every bridge. `version`: the one they were made of.

        The same maps once more change nothing.
        """
        async with self.turns:
            kept = self.versions()
            newest = kept[0] if kept else None
            stamp = next_stamp(WHAT, newest, version, by=by, now=self.clock.now_ms())
            if newest is not None and is_same(newest, text):
                return newest
            await asyncio.to_thread(_check, text.text)
            row = PushedMaps(**text.model_dump(), **stamp)
            await self.writer.write(topics.MAPS, str(row.version), row)
            for old in kept[KEPT - 1 :]:
                await self.writer.write(topics.MAPS, str(old.version), None)
            return row


def _check(text: str) -> None:
    """Compiles maps as a bridge does. Raises Problem(422)."""
    if not text:
        return
    try:
        compile_maps(text, WHAT, needs_names=True)
    except ConfigError as error:
        raise Problem(422, "maps", str(error)) from error
