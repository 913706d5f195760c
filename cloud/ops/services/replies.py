"""Writes replies to devices' requests: operators' replies, and what `RequestTable` decides."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from edgewake.cloud.ops.tables.requests import replied
from edgewake.cloud.ops.tables.table_writer import TableWriter
from edgewake.cloud.ops.tables.tables import OpsTables
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.downlink.down_message import ReplyState
from edgewake.protocol.downlink.down_row import key_of
from edgewake.protocol.downlink.request_row import RequestRow
from edgewake.protocol.errors import Unavailable

log = logging.getLogger("edgewake.ops")

LOOK_EVERY_S: Final = 0.1
"""Seconds between checks for rows to write."""
RETRY_S: Final = 1.0


class Replies:
    """Writes rows of `ew.requests`, and those of `ew.down` that carry replies."""

    def __init__(self, writer: TableWriter, tables: OpsTables, *, clock: Clock) -> None:
        self._writer, self._tables, self._clock = writer, tables, clock
        self._turn = asyncio.Lock()

    async def reply(
        self,
        device: str,
        request_id: str,
        state: ReplyState,
        body: str,
        detail: str,
        *,
        by: str,
        is_hidden: bool = False,
    ) -> RequestRow:
        """Replies to a request, finally; repeating the reply changes nothing.

        Raises Problem, Unavailable.
        """
        async with self._turn:
            row = self.one(device, request_id, is_hidden=is_hidden)
            now_ms = self._clock.now_ms()
            said = replied(row, state, now_ms=now_ms, body=body, detail=detail, by=by)
            if row.reply is not None:
                if row.reply != said.reply:
                    raise Problem(
                        409,
                        "replied",
                        f"{request_id!r} of {device} is {row.reply.state}, which cannot be changed",
                    )
                return row
            if now_ms >= row.expires_at:
                raise Problem(
                    409,
                    "over",
                    f"{request_id!r} of {device} has ended: nobody waits for a reply",
                )
            await self._writer.write(topics.REQUESTS, key_of(device, request_id), said)
            return said

    def one(self, device: str, request_id: str, *, is_hidden: bool = False) -> RequestRow:
        """Returns the row of a request; one that is hidden is not there. Raises Problem."""
        row = self._tables.requests.get(device, request_id)
        if row is None or is_hidden:
            raise Problem(
                404, "no_such_request", f"no request {request_id!r} of {device!r} is known"
            )
        return row

    async def run(self, ready: asyncio.Event) -> None:
        """Records new requests, ends expired ones and sends replies, until cancelled."""
        await ready.wait()
        while True:
            try:
                async with self._turn:
                    for write in self._tables.requests.due(self._tables.down, self._clock.now_ms()):
                        await self._writer.write(write.topic, write.key, write.row)
            except Unavailable as error:
                log.warning(
                    "a row of a request is not written yet: %s",
                    error,
                    extra={"event": "ops.request_waits"},
                )
                await self._clock.sleep(RETRY_S)
            await self._clock.sleep(LOOK_EVERY_S)
