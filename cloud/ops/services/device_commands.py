"""Sends commands to devices and follows them until the device's answer.

A command is durable in Kafka before it is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from edgewake.cloud.ops.tables.table_writer import TableWriter
from edgewake.cloud.ops.tables.tables import OpsTables
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.downlink.down_message import Command, Settings, decode
from edgewake.protocol.downlink.down_row import OPEN_BY_GATEWAY_MAX, OPEN_MAX, DownRow, key_of
from edgewake.protocol.downlink.downlink import REPLY_PREFIX, DownKind
from edgewake.protocol.errors import Rejected, Unavailable

log = logging.getLogger("edgewake.ops")

LOOK_EVERY_S: Final = 0.1
"""Seconds between checks for answers that are not in a row yet."""
RETRY_S: Final = 1.0


class DeviceCommands:
    """Writes the rows of `ew.down`; the bridges send them."""

    def __init__(
        self, writer: TableWriter, tables: OpsTables, *, clock: Clock, new_id: Callable[[], str]
    ) -> None:
        """`new_id` makes unique ids."""
        self._writer, self._tables, self._clock, self._new_id = writer, tables, clock, new_id
        self._turn = asyncio.Lock()

    async def command(
        self,
        device: str,
        message_id: str | None,
        name: str,
        args: tuple[str, ...],
        expires_s: int,
        *,
        by: str,
    ) -> DownRow:
        """Sends a command; a repeated id sends nothing new. Raises Problem, Unavailable."""
        if message_id is not None and message_id.startswith(REPLY_PREFIX):
            raise Problem(
                422,
                "not_sent",
                f"id {message_id!r}: ids that begin with {REPLY_PREFIX!r} are replies; expected "
                "another id",
            )
        async with self._turn:
            via = self._tables.devices.gateway_of(device)
            known = message_id and self._tables.down.get(device, message_id)
            if known:
                via = known.via
            thing = device if via else ""
            body = Command(id=message_id or self._new_id(), name=name, args=args, thing=thing)
            return await self._ask(device, DownKind.COMMAND, body, expires_s, by, via)

    async def settings(
        self, device: str, text: str, version: int | None, expires_s: int, *, by: str
    ) -> DownRow:
        """Sends a configuration; without a version it gets the next one.

        Raises Problem, Unavailable.
        """
        if via := self._tables.devices.gateway_of(device):
            raise Problem(
                409,
                "not_its_own",
                f"{device} is behind the gateway {via} and has no configuration of its own: "
                f"expected {via}, whose sources and maps bring it",
            )
        async with self._turn:
            latest = self.version(device)
            if version is not None and version <= latest:
                raise Problem(
                    409,
                    "old_version",
                    f"version {version}: the device was given {latest} already; expected a "
                    "greater one",
                )
            body = Settings(id=self._new_id(), version=version or latest + 1, text=text)
            return await self._ask(device, DownKind.SETTINGS, body, expires_s, by)

    def version(self, device: str) -> int:
        """Returns the greatest settings version sent to a device; 0 where none is known."""
        messages = (row.message for _, row in self._tables.down.of(device, DownKind.SETTINGS))
        return max(
            (message.version for message in messages if isinstance(message, Settings)), default=0
        )

    async def _ask(
        self,
        device: str,
        kind: DownKind,
        body: Command | Settings,
        expires_s: int,
        by: str,
        via: str = "",
    ) -> DownRow:
        now_ms, payload = self._clock.now_ms(), body.to_json().decode()
        try:
            decode(kind, payload.encode())  # The device checks it in the same way.
        except Rejected as error:
            raise Problem(422, "not_sent", error.detail) from error
        if (known := self._tables.down.get(device, body.id)) is not None:
            if (known.kind, known.payload) != (kind, payload):
                raise Problem(
                    409, "id_in_use", f"id {body.id!r} was used before, for another message"
                )
            return known
        if self._tables.down.open_of(device, now_ms) >= OPEN_MAX:
            raise Problem(
                409,
                "too_many",
                f"{OPEN_MAX} messages wait for {device}, the most at once; wait for an answer",
            )
        if via and self._tables.down.open_by(via, now_ms) >= OPEN_BY_GATEWAY_MAX:
            raise Problem(
                409,
                "too_many",
                f"{OPEN_BY_GATEWAY_MAX} messages wait for things behind {via}, the most at once; "
                "wait for an answer",
            )
        for key in self._tables.down.to_forget(device, now_ms):
            await self._writer.write(topics.DOWN, key, None)
        row = DownRow(
            device=device, kind=kind, payload=payload, asked_at=now_ms,
            expires_at=now_ms + 1000 * expires_s, asked_by=by, via=via
        )  # fmt: skip
        await self._writer.write(topics.DOWN, key_of(device, body.id), row)
        return row

    async def keep_answers(self) -> None:
        """Writes answers into their rows, until cancelled.

        They stay on their stream's topic, and are read again after a restart.
        """
        while True:
            for key, row in self._tables.down.answered():
                try:
                    await self._writer.write(topics.DOWN, key, row)
                except Unavailable as error:
                    log.warning(
                        "an answer is not written yet: %s",
                        error,
                        extra={"event": "ops.answer_waits"},
                    )
                    await self._clock.sleep(RETRY_S)
                    break
            await self._clock.sleep(LOOK_EVERY_S)
