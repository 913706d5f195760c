"""Follows server-sent events (WHATWG HTML 9.2) whose data is a JSON object, or a list of them.

The id of the last event is kept in the log with its readings, in one transaction. After a crash, or
a lost connection, the server is asked to go on after it (`Last-Event-ID`): nothing is missed and
nothing taken twice, as far as the server keeps its word. A server that gives no ids begins where it
likes. 204 means that nothing more will come (9.2.3).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Literal

from edgewake.edge.client.sse import Event, Parser
from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.sources.config import SourceContext
from edgewake.edge.sources.items import checked
from edgewake.edge.sources.mapping import items_of
from edgewake.edge.sources.web.http_client import Answer, answer, not_as_wanted
from edgewake.edge.sources.web.web_config import WebConfig
from edgewake.protocol.errors import Rejected, Unavailable
from edgewake.protocol.plain import key

log = logging.getLogger("edgewake.source")

ID_BYTES_MAX: Final = 1024
"""Bytes of an id that is kept. A longer one cannot be sent back to most servers; the one before
stays."""
RETRY_MS_MAX: Final = 60_000
"""The longest wait that a server may ask for."""
RETRY_MS_MIN: Final = 100
"""The shortest: a server that ends each connection at once must not keep a device busy."""
RETRY_MS: Final = 1000
"""Wait before the connection is made again, where the server says nothing."""
IDLE_COMMIT_S: Final = 30.0
"""Ids that come without readings are committed so often: each commit costs a write to the flash,
and missing one costs nothing but events that the server sends again."""


class SsePullConfig(WebConfig):
    """A stream of server-sent events that is followed."""

    type: Literal["sse_pull"]
    events: tuple[str, ...] = ()
    """Types of events that are readings; none: all."""
    silence_s: float = key(default=60.0, gt=0, le=3600)
    """Seconds without a byte after which the connection is taken for dead; servers send comments to
    keep it alive."""

    def source(self, context: SourceContext) -> SsePull:
        return SsePull(self, context)


class SsePull:
    """Follows the stream of events, and queues the readings of each."""

    policy = Policy.BLOCK

    def __init__(self, config: SsePullConfig, context: SourceContext) -> None:
        """Raises ConfigError."""
        self._config = config
        self._clock = context.clock
        self._tls = config.tls()
        self._maps = config.message_maps(context)
        self._id = context.position(config.position_name()) or ""
        self._committed_s = context.clock.monotonic_s()
        self._asked_ms: int | None = None
        """The wait that the server asked for last; it holds over connections, as the standard says
        (9.2.4)."""

    async def run(self, intake: Intake) -> None:
        while await self._follow(intake):
            await self._clock.sleep(wait_ms(self._asked_ms) / 1000)

    async def _follow(self, intake: Intake) -> bool:
        """One connection; False where the server has nothing more.

        Raises Unavailable, RemoteError.
        """
        known = [("Last-Event-ID", self._id)] if self._id else []
        request = self._config.request(
            ("Accept", "text/event-stream"), ("Cache-Control", "no-store"), *known
        )
        async with answer(request, self._tls) as got:
            if got.status == 204:
                return False
            kind = got.headers.get("content-type", "").partition(";")[0].strip().lower()
            if got.status != 200 or kind != "text/event-stream":
                raise not_as_wanted(
                    request, got, self._clock.now_ms(), f", {kind or 'no content type'}"
                )
            await self._take_all(intake, got)
        return True

    async def _take_all(self, intake: Intake, got: Answer) -> None:
        """Until the server ends the stream.

        Raises Unavailable, with the wait that it asked for, where it is cut off; RemoteError.
        """
        parser = Parser(self._id)
        try:
            async for piece in got.pieces(silence_s=self._config.silence_s):
                events = parser.feed(piece)
                self._asked_ms = self._asked_ms if parser.retry_ms is None else parser.retry_ms
                await self._take(intake, events, parser.last_event_id)
        except Unavailable as error:
            error.retry_after_s = 0.0 if self._asked_ms is None else wait_ms(self._asked_ms) / 1000
            raise

    async def _take(self, intake: Intake, events: list[Event], last_id: str) -> None:
        readings: list[Reading] = []
        for event in events:
            if not self._config.events or event.type in self._config.events:
                readings += await self._readings(intake, event)
        last_id = self._last_sendable([last_id, *(event.id for event in reversed(events))])
        now_s = self._clock.monotonic_s()
        if last_id != self._id and (events or now_s - self._committed_s >= IDLE_COMMIT_S):
            await intake.put(readings, position=(self._config.position_name(), last_id))
            self._id, self._committed_s = last_id, now_s
        elif readings:
            await intake.put(readings)

    async def _readings(self, intake: Intake, event: Event) -> Sequence[Reading]:
        try:
            return await checked(intake, items_of(intake, event.data.encode(), "", self._maps))
        except Rejected as error:
            intake.refuse(error.reason, error.detail)
            return []

    def _last_sendable(self, ids: list[str]) -> str:
        """The latest id that a header can carry; `ids` has the latest first.

        Events behind it come again after the next connection.
        """
        found = next(filter(sendable, ids), self._id)
        if found != ids[0]:
            log.warning(
                "%s: an id that cannot be sent back is not kept", self._config.url,
                extra={"event": "source.bad_id", "source": self._config.stream},
            )  # fmt: skip
        return found


def wait_ms(asked: int | None) -> int:
    """Wait before the next connection, where the server asked for one or not."""
    return RETRY_MS if asked is None else min(max(asked, RETRY_MS_MIN), RETRY_MS_MAX)


def sendable(last_id: str) -> bool:
    """Can it be sent in a header as it is (RFC 9110, section 5.5)?"""
    return (
        len(last_id.encode()) <= ID_BYTES_MAX
        and last_id == last_id.strip()
        and (not last_id or last_id.isprintable())
    )
