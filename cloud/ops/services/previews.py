"""Requests previews, the results of a query file over recent readings, from the analysis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson
from pydantic import BaseModel

from edgewake.cloud.client_share import Bound, Held
from edgewake.cloud.ops.tables.table_writer import TableWriter
from edgewake.cloud.ops.tables.tables import OpsTables
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.ops.preview import WAIT_MS, Preview

AT_ONCE_MAX: Final = 4
"""The most previews that wait; the analysis computes one at a time."""
HOLDER_SHARE: Final = 0.5
"""The share of AT_ONCE_MAX that one holder of a key may use."""
LOOK_EVERY_S: Final = 0.05


class PreviewRows(BaseModel):
    """The result of a preview."""

    rows: list[dict[str, Any]]
    """Rows; a window that may have earlier readings has `"complete": false`."""
    is_cut: bool
    """Whether more rows were omitted."""
    units: dict[str, str] = {}
    """Column → unit, as in a check."""


class PreviewDesk:
    """Writes requests to `ew.previews` and waits for answers."""

    def __init__(
        self, writer: TableWriter, tables: OpsTables, *, clock: Clock, new_id: Callable[[], str]
    ) -> None:
        """`new_id` makes unique ids."""
        self._writer, self._tables, self._clock, self._new_id = writer, tables, clock, new_id
        self._waiting = Held(Bound("previews", AT_ONCE_MAX, HOLDER_SHARE))

    async def ask(self, text: str, *, minutes: int, rows_max: int, holder: str = "") -> PreviewRows:
        """Requests a preview and returns its result. Raises Problem or Unavailable."""
        refused = self._waiting.take(holder)
        if refused is not None:
            raise Problem(429, "too_many_previews", f"{refused}; ask again when one has come")
        now_ms = self._clock.now_ms()
        asked = Preview(
            id=f"{now_ms}-{self._new_id()}",
            text=text,
            since=now_ms - minutes * 60_000,
            rows_max=rows_max,
            asked_at=now_ms,
        )
        try:
            for old in forgotten(self._tables.previews, now_ms):
                await self._writer.write(topics.PREVIEWS, old, None)
            await self._writer.write(topics.PREVIEWS, asked.id, asked)
            answer = await self._answer(asked)
            await self._writer.write(topics.PREVIEWS, asked.id, None)
        finally:
            self._waiting.give_back(holder)
        if answer.error:
            raise Problem(409, "preview_failed", answer.error)
        return PreviewRows(
            rows=[orjson.loads(row) for row in answer.rows or ()], is_cut=answer.is_cut
        )

    async def _answer(self, asked: Preview) -> Preview:
        deadline_s = self._clock.monotonic_s() + WAIT_MS / 1000
        while self._clock.monotonic_s() < deadline_s:
            found = self._tables.previews.get(asked.id)
            if found is not None and found.is_answered:
                return found
            await self._clock.sleep(LOOK_EVERY_S)
        raise Unavailable(
            f"the analysis gave no answer within {WAIT_MS // 1000} s; does it run? `edgewake "
            "status` tells"
        )


def forgotten(previews: Mapping[str, Preview], now_ms: int) -> list[str]:
    """Returns the ids of previews that nobody waits for any more."""
    return [preview.id for preview in previews.values() if preview.asked_at < now_ms - 2 * WAIT_MS]
