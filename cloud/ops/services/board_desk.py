"""Stores boards with versions: the second of two concurrent changes is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from edgewake.cloud.ops.services.versions import is_same, keep, next_stamp
from edgewake.cloud.ops.tables.table_writer import TableWriter
from edgewake.cloud.ops.tables.tables import OpsTables
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.ops.board import Board, BoardText

BOARDS_MAX: Final = 500
"""The most boards, a few KB each."""


@dataclass(frozen=True, slots=True)
class BoardDesk:
    """Reads, stores and removes boards."""

    writer: TableWriter
    tables: OpsTables
    clock: Clock

    def get(self, name: str) -> Board:
        """Returns a board. Raises Problem(404)."""
        found = self.tables.boards.get(name)
        if found is None:
            raise Problem(
                404, "no_such_board", f"unknown board {name!r}; GET /v1/boards lists them"
            )
        return found

    async def put(self, name: str, text: BoardText, *, version: int | None, by: str) -> Board:
        """Stores a board and returns its row. An identical board changes nothing.

        `version` is the one that was changed, if known. Raises Problem or Unavailable.
        """

        def change(before: Board | None) -> Board:
            if before is not None and is_same(before, text):
                return before
            stamp = next_stamp(f"board {name!r}", before, version, by=by, now=self.clock.now_ms())
            if before is None and len(self.tables.boards) >= BOARDS_MAX:
                raise Problem(
                    409,
                    "too_many_boards",
                    f"{BOARDS_MAX} boards exist already, the most that are kept; remove some",
                )
            return Board(**text.model_dump(), name=name, **stamp)

        return await keep(
            self.writer, topics.BOARDS, name, lambda: self.tables.boards.get(name), change
        )

    async def remove(self, name: str) -> None:
        """Removes a board. Raises Problem or Unavailable."""
        self.get(name)
        await self.writer.write(topics.BOARDS, name, None)
