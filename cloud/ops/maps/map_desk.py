"""Keeps the versions of the maps that all bridges use.

Maps are compiled here as at a bridge before they are kept: what a bridge could not use is refused
with line and key, and no bridge hears of it. Where two operations servers write a number at the
same moment, the first record in the log has it; the other server takes the next number, or
refuses where its maps were made of a version that is not the newest any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from edgewake.cloud.ops.services.versions import is_same, next_stamp
from edgewake.cloud.ops.tables.table_writer import TableWriter
from edgewake.cloud.ops.tables.tables import OpsTables
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import ConfigError, Unavailable
from edgewake.protocol.maps.compiling import compile_maps
from edgewake.protocol.ops.pushed_maps import KEPT, MapsText, PushedMaps, key_of

WHAT: Final = "maps"
"""What is kept, in refusals."""
TRIES_MAX: Final = 8
"""Numbers that are tried where other operations servers are faster with each; then it is 503."""


@dataclass(frozen=True, slots=True)
class MapDesk:
    """Its methods raise Problem or Unavailable."""

    writer: TableWriter
    tables: OpsTables
    clock: Clock
    new_id: Callable[[], str]
    """Makes unique ids."""
    turns: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Two that push at once get a version each."""

    def versions(self) -> list[PushedMaps]:
        """All that are kept, the newest first."""
        return list(reversed(self.tables.maps.rows.values()))

    def version(self, version: int) -> PushedMaps:
        """One version. Raises Problem(404)."""
        found = next((one for one in self.versions() if one.version == version), None)
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
            for _ in range(TRIES_MAX):
                newest = self.tables.maps.newest
                stamp = next_stamp(WHAT, newest, version, by=by, now=self.clock.now_ms())
                if newest is not None and is_same(newest, text):
                    return newest
                await asyncio.to_thread(_check, text.text)
                row = PushedMaps(**text.model_dump(), **stamp)
                if await self._keep(row):
                    return row
        raise Unavailable(f"{WHAT}: other servers keep new versions all the time")

    async def _keep(self, row: PushedMaps) -> bool:
        """Writes a version; False where another server's record with its number came first."""
        key = key_of(row.version, self.new_id())
        await self.writer.write(topics.MAPS, key, row)
        is_first = key in self.tables.maps.rows  # all records up to ours are read now
        removed = self.tables.maps.keys_before(row.version - KEPT + 1) if is_first else [key]
        for old in removed:
            await self.writer.write(topics.MAPS, old, None)
        return is_first


def _check(text: str) -> None:
    """Compiles maps as a bridge does. Raises Problem(422)."""
    if not text:
        return
    try:
        compile_maps(text, WHAT, needs_names=True)
    except ConfigError as error:
        raise Problem(422, "maps", str(error)) from error
