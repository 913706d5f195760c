"""Ends the connections of devices whose certificates were taken back.

Mosquitto reads its list of revoked certificates again when it is told to, and asks it of nobody who
is connected already. What ends a connection is another one with its client id: so we come as the
device, on the loopback, where nobody is asked for a certificate, and leave. The device comes again
and is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import mqtt5

from edgewake.protocol.certificates import book as books
from edgewake.protocol.clock import Clock

log = logging.getLogger("edgewake.deploy")

ANSWER_S: Final = 10.0
AGAIN_S: Final = (0.0, 5.0, 15.0)
"""When we come, in seconds after the broker was told: a handshake that began before may end after
the first time."""
CONNACK_BYTES: Final = 4


class ThrowOut:
    """Remembers how far the book of certificates was read."""

    def __init__(self, book_file: Path, port: int, clock: Clock) -> None:
        self._file, self._port, self._clock = book_file, port, clock
        self._number = self._book().number

    def devices(self) -> list[str]:
        """The devices whose certificates were revoked since the last call."""
        book = self._book()
        found = book.after(self._number)
        self._number = max(self._number, book.number)
        return found

    async def end(self, devices: Iterable[str]) -> None:
        """End their connections, now and again."""
        names, waited = sorted(set(devices)), 0.0
        for at_s in AGAIN_S:
            await self._clock.sleep(at_s - waited)
            waited = at_s
            for name in names:
                await self._come_as(name)

    def _book(self) -> books.Book:
        try:
            return books.parse(self._file.read_text("ascii"))
        except (OSError, ValueError, TypeError, LookupError):
            return books.Book()

    async def _come_as(self, device: str) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                try:
                    come = mqtt5.ConnectPacket(device, clean_start=True, keep_alive=10)
                    writer.write(come.write())
                    await reader.readexactly(CONNACK_BYTES)
                    writer.write(mqtt5.DisconnectPacket().write())
                    await writer.drain()
                finally:
                    writer.close()
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            # A broker that does not answer has no connections, or is started again without them.
            log.warning(
                "the connection of %s could not be ended: %s",
                device,
                error,
                extra={"event": "device.not_thrown_out"},
            )
