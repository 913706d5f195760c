"""Follows an answer of a web server that does not end: each line of it is a reading.

What was sent while nobody was connected is not there: such servers keep nothing. An answer that
ends is asked for again.
"""

from __future__ import annotations

from typing import Literal

from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.config import SourceContext
from edgewake.edge.sources.lines.line_format import LineFormat, LineReader
from edgewake.edge.sources.lines.lines import LineSplitter
from edgewake.edge.sources.web.http_client import answer, not_as_wanted
from edgewake.edge.sources.web.web_config import WebConfig
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.plain import key


class HttpLinesConfig(WebConfig):
    """An answer of a web server that goes on and on, line by line."""

    type: Literal["http_lines"]
    format: Literal["json", "text", "influx"] = "json"
    """json: each line is a JSON object; text: each becomes the field `line`; influx: a point of
    InfluxDB's line protocol."""
    silence_s: float = key(default=60.0, gt=0, le=86_400)
    """Seconds without a byte after which it is requested again."""

    def source(self, context: SourceContext) -> HttpLines:
        return HttpLines(self, context)


class HttpLines:
    """Follows the answer, and queues a reading for each of its lines."""

    policy = Policy.BLOCK

    def __init__(self, config: HttpLinesConfig, context: SourceContext) -> None:
        """Raises ConfigError."""
        self._config = config
        self._clock = context.clock
        self._tls = config.tls()
        self._lines = LineReader(LineFormat(config.format), maps=config.message_maps(context))

    async def run(self, intake: Intake) -> None:
        request = self._config.request(("Accept", "*/*"))
        splitter = LineSplitter()
        async with answer(request, self._tls) as got:
            if got.status != 200:
                raise not_as_wanted(request, got, self._clock.now_ms())
            async for piece in got.pieces(silence_s=self._config.silence_s):
                await intake.put(self._lines.readings(intake, splitter.feed(piece)))
            await intake.put(self._lines.readings(intake, splitter.last()))
        raise Unavailable(f"{self._config.url}: the answer ended")
