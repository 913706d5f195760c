"""Lines in datagrams: what programs throw at a port and forget, such as InfluxDB's line protocol.

Nobody is told whether a datagram came: one that finds no room here is counted, one that found none
in the kernel is not.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import deque
from typing import Annotated, Final, Literal

from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.config import SourceContext
from edgewake.edge.sources.lines.line_format import LineFormat, LinesConfig
from edgewake.edge.sources.lines.lines import Line, LineSplitter
from edgewake.edge.sources.mapping import MessageMaps
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.plain import Check, key

WAITING_BYTES_MAX: Final = 1 << 20
"""Bytes of datagrams that wait for the log; those that come then are dropped, and counted."""
AT_ONCE: Final = 256
"""Datagrams whose readings are put in one transaction."""


def _address(text: str) -> str:
    ipaddress.ip_address(text)
    return text


class UdpLinesConfig(LinesConfig):
    """Lines in datagrams (UDP)."""

    type: Literal["udp_lines"]
    host: Annotated[str, Check(_address)] = "127.0.0.1"
    """Address to listen on. A datagram proves nothing of its sender: on any other than this
    machine's own, whoever reaches the port can send."""
    port: int = key(ge=1, le=65_535)
    """UDP port."""
    format: LineFormat = LineFormat.INFLUX
    """influx: a point of InfluxDB's line protocol; json: each line is a JSON object; text: each
    becomes the field `line`; csv: values of `columns`; nmea: a sentence of NMEA 0183; gpsd: a
    report of gpsd."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_columns(self.format)

    def source(self, context: SourceContext) -> UdpLines:
        return UdpLines(self, self.message_maps(context))

    def owns(self) -> str:
        return f"the UDP port {self.port}"


class UdpLines:
    """Listens, and queues a reading for each line of a datagram."""

    policy = Policy.DROP_NEWEST

    def __init__(self, config: UdpLinesConfig, maps: MessageMaps | None = None) -> None:
        self._config = config
        self._lines = config.reader(config.format, maps)

    async def run(self, intake: Intake) -> None:
        loop = asyncio.get_running_loop()
        waiting = Waiting(intake)
        transport, _ = await loop.create_datagram_endpoint(
            lambda: waiting, local_addr=(self._config.host, self._config.port)
        )
        try:
            while True:
                datagrams = await waiting.next()
                lines = [line for one in datagrams for line in lines_of(one)]
                await intake.put(self._lines.readings(intake, lines))
        finally:
            transport.close()


def lines_of(datagram: bytes) -> list[Line]:
    """Its lines; the last one needs no end. Pure."""
    splitter = LineSplitter()
    return splitter.feed(datagram) + splitter.last()


class Waiting(asyncio.DatagramProtocol):
    """Datagrams that came and were not taken yet, bounded."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._datagrams: deque[bytes] = deque()
        """At most WAITING_BYTES_MAX."""
        self._bytes = 0
        self._came = asyncio.Event()

    def datagram_received(self, data: bytes, addr: object) -> None:  # noqa: ARG002
        """Queue a datagram that has come."""
        if self._bytes + len(data) > WAITING_BYTES_MAX:
            lines = data.count(b"\n") + (not data.endswith(b"\n"))
            self._intake.refuse(RejectReason.QUOTA, "no room for a datagram", lines)
            return
        self._bytes += len(data)
        self._datagrams.append(data)
        self._came.set()

    async def next(self) -> list[bytes]:
        """The oldest, at most AT_ONCE; waits for one."""
        while not self._datagrams:
            self._came.clear()
            await self._came.wait()
        count = min(AT_ONCE, len(self._datagrams))
        found = [self._datagrams.popleft() for _ in range(count)]
        self._bytes -= sum(map(len, found))
        return found
