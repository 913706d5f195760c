"""Asks a web server at intervals and takes the JSON of its answer.

It is an object, a list of objects, lines, or a list inside an object.

An answer with an ETag is asked for only when it has changed; the tag is kept in the log with the
readings, so nothing is taken twice across restarts. Without one every answer counts. A server that
does not answer well is asked again after the back-off of every source, and not before it wants to
be (Retry-After).
"""

from __future__ import annotations

from typing import Final, Literal

from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.config import SourceContext
from edgewake.edge.sources.items import DOCUMENT_BYTES_MAX, checked
from edgewake.edge.sources.mapping import items_of
from edgewake.edge.sources.web.http_client import answer, not_as_wanted
from edgewake.edge.sources.web.web_config import WebConfig
from edgewake.protocol.errors import Rejected
from edgewake.protocol.plain import key

ANSWER_S: Final = 60.0
"""Seconds for the body of an answer."""
TAG_CHARS_MAX: Final = 200
"""Characters of an ETag that is kept; a longer one is not used."""


class HttpPollConfig(WebConfig):
    """A web server that is asked at intervals."""

    type: Literal["http_poll"]
    interval_s: float = key(default=60.0, ge=0.1, le=86_400)
    """Seconds from one question to the next; questions that are overdue are left out."""
    items: str = key(default="", max_length=200)
    """Where the readings are in the answer: names joined by dots, e.g. `data.values`. Empty: the
    answer itself."""
    answer_bytes_max: int = key(default=DOCUMENT_BYTES_MAX, ge=1024, le=16 << 20)
    """Bytes of an answer. A longer one is not taken, and the source waits as after any failure."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.items and self.has_maps:
            raise ValueError("items: expected without maps, where `each` of a map says it")

    def source(self, context: SourceContext) -> HttpPoll:
        return HttpPoll(self, context)


class HttpPoll:
    """Asks at each interval, and queues the readings of the answer."""

    policy = Policy.DROP_NEWEST

    def __init__(self, config: HttpPollConfig, context: SourceContext) -> None:
        """Raises ConfigError."""
        self._config = config
        self._clock = context.clock
        self._tls = config.tls()
        self._maps = config.message_maps(context)
        self._tag = context.position(config.position_name()) or ""

    async def run(self, intake: Intake) -> None:
        due_s = self._clock.monotonic_s()
        while True:
            await self._ask(intake)
            due_s = max(due_s + self._config.interval_s, self._clock.monotonic_s())
            await self._clock.sleep(due_s - self._clock.monotonic_s())

    async def _ask(self, intake: Intake) -> None:
        known = [("If-None-Match", self._tag)] if self._tag else []
        request = self._config.request(("Accept", "application/json"), *known)
        async with answer(request, self._tls) as got:
            if got.status == 304:
                return
            if got.status != 200:
                raise not_as_wanted(request, got, self._clock.now_ms())
            document = await got.body(bytes_max=self._config.answer_bytes_max, time_s=ANSWER_S)
            tag = usable_tag(got.headers.get("etag", ""))
        try:
            readings = await checked(
                intake, items_of(intake, document, self._config.items, self._maps)
            )
        except Rejected as error:
            intake.refuse(error.reason, error.detail)
            return
        changed = tag != self._tag
        await intake.put(
            readings, position=(self._config.position_name(), tag) if changed else None
        )
        self._tag = tag


def usable_tag(tag: str) -> str:
    """An ETag that can be sent back, or nothing."""
    return tag if len(tag) <= TAG_CHARS_MAX and tag.isascii() and tag.isprintable() else ""
