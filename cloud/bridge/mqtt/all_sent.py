"""Tells when a broker has sent everything that it had for a connection.

MQTT has no word for it. But packets come in the order in which a broker sends them, and it sends
what it has before it answers a ping: when nothing came between the question and the answer, all
has come.
"""

from __future__ import annotations

from typing import Final

from edgewake.cloud.bridge.mqtt.mqtt_connection import Connection
from edgewake.protocol.clock import Clock

LOOK_S: Final = 0.05
"""Seconds between two looks at whether all is there."""
SILENT_S: Final = 10.0
"""Seconds of a broker's silence after which whoever waits gives up, and tries again later."""


class AllSent:
    """Asks the broker of one connection, again and again, until it has sent all."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection, self._clock = connection, clock
        self._asked: tuple[int, int] | None = None
        """The number of the ping that asked last, and how much had been received by then."""

    def is_answered(self, received: int, *, may_ask: bool) -> bool:
        """Has the broker answered, and sent nothing since it was asked?

        `received`: a number that changes with each message. `may_ask`: could the broker have sent
        all by now? It is asked then, if it was not, and its answer counts.
        """
        connection = self._connection
        if self._asked is not None and connection.pongs >= self._asked[0]:
            if may_ask and received == self._asked[1]:
                return True
            self._asked = None
        if may_ask and self._asked is None:
            connection.ping()
            self._asked = connection.pings, received
        return False

    async def look_later(self, *, is_paused: bool) -> None:
        """Wait until it is worth another look; while we read nothing a silence means nothing.

        Raises TimeoutError where the broker is silent for too long, or what ended the connection.
        """
        connection = self._connection
        now_s = self._clock.monotonic_s()
        if is_paused:
            connection.heard_s = now_s
        elif now_s - connection.heard_s > SILENT_S:
            raise TimeoutError(f"the broker is silent for {SILENT_S:.0f} s")
        await self._clock.sleep(LOOK_S)
        if connection.lost.done():
            connection.lost.result()
