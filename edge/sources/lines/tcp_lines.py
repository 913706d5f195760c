"""Lines that a server sends over TCP: JSON, text, NMEA 0183 (a ship's multiplexer), or gpsd.

What was sent while nobody was connected is not there: such servers keep nothing. With TCP keepalive
and `silence_s` a dead line is noticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.sources.address import BUFFER_BYTES, connected
from edgewake.edge.sources.config import SourceContext
from edgewake.edge.sources.lines.gpsd import WATCH
from edgewake.edge.sources.lines.line_format import LineFormat, LinesConfig
from edgewake.edge.sources.lines.lines import LineSplitter
from edgewake.edge.sources.mapping import MessageMaps
from edgewake.protocol.errors import RejectReason, Unavailable
from edgewake.protocol.plain import key


class TcpLinesConfig(LinesConfig):
    """Lines over TCP: NMEA 0183, gpsd, JSON or text."""

    type: Literal["tcp_lines"]
    host: str
    """Name or address."""
    port: int = key(default=2947, ge=1, le=65_535)
    """TCP port; gpsd's is 2947."""
    format: LineFormat
    """json: each line is a JSON object; text: each becomes the field `line`; csv: values of
    `columns`; influx: a point of InfluxDB's line protocol; nmea: a sentence of NMEA 0183; gpsd: a
    report of gpsd."""
    hello: str = key(default="", max_length=1024)
    """What is said first, `\\n` included; gpsd is asked to watch without it."""
    silence_s: float = key(default=60.0, gt=0, le=86_400)
    """Seconds without a byte after which it reconnects."""

    def source(self, context: SourceContext) -> TcpLines:
        return TcpLines(self, self.message_maps(context))

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_columns(self.format)

    def owns(self) -> str:
        return f"{self.host}:{self.port}"


class TcpLines:
    """Connects, and queues a reading for each line that the server sends."""

    policy = Policy.BLOCK

    def __init__(self, config: TcpLinesConfig, maps: MessageMaps | None = None) -> None:
        self._config = config
        self._lines = config.reader(config.format, maps)

    async def run(self, intake: Intake) -> None:
        config = self._config
        where = f"{config.host}:{config.port}"
        splitter = LineSplitter()
        async with connected(config.host, config.port) as (reader, writer):
            writer.write(
                (config.hello or (WATCH if config.format is LineFormat.GPSD else "")).encode()
            )
            while True:
                try:
                    async with asyncio.timeout(config.silence_s):
                        data = await reader.read(BUFFER_BYTES)
                except TimeoutError as error:
                    raise Unavailable(
                        f"{where}: nothing heard for {config.silence_s:.0f} s"
                    ) from error
                if not data:
                    await intake.put(self._last(intake, splitter))
                    raise Unavailable(f"{where}: closed by the server")
                await intake.put(self._lines.readings(intake, splitter.feed(data)))

    def _last(self, intake: Intake, splitter: LineSplitter) -> Sequence[Reading]:
        """The reading in what stood without an end when the server closed.

        Half a text looks like a whole one, so it is refused.
        """
        lines = splitter.last()
        if self._config.format is LineFormat.TEXT:
            for _ in lines:
                intake.refuse(RejectReason.SHAPE, "the server closed in the middle of a line")
            return []
        return self._lines.readings(intake, lines)
