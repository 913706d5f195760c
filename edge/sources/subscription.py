"""Follows other devices' streams and results over this device's own MQTT connection.

See `edgewake.protocol.downlink.feed`.

Events, gaps and cursor are kept in one transaction, so a device that was killed, slept, or was cut
off goes on where it stopped: nothing comes twice, and what the cloud no longer keeps is a gap of
this stream. The envelope's names are not free for fields: an event's own device is `of_device`
here, and so on (SHOWN).
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from edgewake.edge.downlink.feeds import SUCCESS, Feeds
from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.processors.config import StreamName
from edgewake.edge.sources.config import SourceConfig, SourceContext
from edgewake.edge.sources.items import checked
from edgewake.protocol.downlink.feed import FILTER_CHARS_MAX, FeedAsk, FeedChunk
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.names import RESERVED_FIELDS, STREAMS_PER_SUBSCRIPTION_MAX
from edgewake.protocol.plain import Length

log = logging.getLogger("edgewake.source")

SHOWN: Final = ("stream", "device", "query", "revision", "final", "window_start", "window_end")
"""What of an event's envelope is kept, each as a field of_…; the rest says how it travelled."""
NOT_KEPT, TOO_LARGE, GIVEN_UP = "not_kept", "too_large", "given_up"
"""Reasons of this stream's gaps: the cloud no longer had it, a message has no room for it, the
device that it is of lost it."""

Filter = Annotated[str, Length(1, FILTER_CHARS_MAX)]


class SubscriptionConfig(SourceConfig):
    """Streams and results of others, from the cloud."""

    type: Literal["subscription"]
    follow: Annotated[tuple[StreamName, ...], Length(1, STREAMS_PER_SUBSCRIPTION_MAX)]
    """Streams and queries, as far as the bridges let devices follow them (`feed.streams`)."""
    where: Filter | None = None
    """Condition, as the access servers take it; none: everything."""
    select: Filter | None = None
    """Fields and expressions; none: all."""
    begin: Literal["earliest", "latest"] = "latest"
    """At the oldest event that is kept, or at the next one to come. Only at the first time;
    afterwards it goes on where it was."""

    def source(self, context: SourceContext) -> Subscription:
        return Subscription(self, context)

    def owns(self) -> str:
        return f"the feed {self.stream}"


class Subscription:
    """Asks for one chunk of the feed after the other, and queues its events."""

    policy = Policy.BLOCK

    def __init__(self, config: SubscriptionConfig, context: SourceContext) -> None:
        """Raises ConfigError."""
        if context.feeds is None:
            raise ConfigError("a subscription needs the agent's connection")
        self._feeds: Feeds = context.feeds
        self._config = config
        self._clock = context.clock
        asked = "\0".join([*config.follow, config.where or "", config.select or ""])
        self.position_name = (
            f"subscription:{config.stream}:{hashlib.sha256(asked.encode()).hexdigest()[:16]}"
        )
        """Where its cursor is kept: another condition is another feed."""
        self._after = context.position(self.position_name) or ""
        self._error = ""
        """Error of the last chunk: one that lasts is logged once."""

    async def run(self, intake: Intake) -> None:
        while True:
            config = self._config
            ask = FeedAsk(
                feed=config.stream, streams=config.follow, where=config.where, select=config.select,
                begin=config.begin, after=self._after
            )  # fmt: skip
            got = await self._feeds.ask(ask)
            if got is not None:
                chunk, acknowledge = got
                await self._take(intake, chunk)
                acknowledge(SUCCESS)
                await self._clock.sleep(chunk.retry_s)

    async def _take(self, intake: Intake, chunk: FeedChunk) -> None:
        if chunk.error and chunk.error != self._error:
            log.warning(
                "feed %s: %s",
                chunk.feed,
                chunk.error,
                extra={"event": "feed.error", "stream": chunk.feed},
            )
        self._error = chunk.error
        if chunk.error:
            return
        lost = Counter[str]()
        for gap in chunk.gaps:
            lost[reason_of(gap)] += lost_in(gap)
            log.error(
                "feed %s: a gap: %s",
                chunk.feed,
                gap,
                extra={"event": "feed.gap", "stream": chunk.feed, "gap": gap},
            )
        readings = await checked(intake, [reading_of(event) for event in chunk.events])
        # A cursor alone is worth no write: without it the same is asked for again.
        if readings or chunk.gaps or not self._after:
            await intake.put(readings, position=(self.position_name, chunk.cursor), lost=+lost)
            await intake.durable()
        self._after = chunk.cursor


def reading_of(event: Mapping[str, Any]) -> dict[str, Any]:
    """An event as a reading of this device's own.

    Its time is the event's; of a result the end of its window; else now.
    """
    fields = {name: value for name, value in event.items() if name not in RESERVED_FIELDS}
    fields |= {f"of_{name}": event[name] for name in SHOWN if event.get(name) is not None}
    t = event.get("t", event.get("window_end"))
    return fields | ({"t": t} if isinstance(t, int) and not isinstance(t, bool) else {})


def reason_of(gap: Mapping[str, Any]) -> str:
    """What this stream's gap says of it."""
    if gap.get("scope") == "device":
        return GIVEN_UP
    return TOO_LARGE if gap.get("reason") == TOO_LARGE else NOT_KEPT


def lost_in(gap: Mapping[str, Any]) -> int:
    """The largest number of events that a gap may have lost.

    For records that the cloud no longer has it counts records; one where nobody can count them.
    """
    lost = gap.get("lost", gap.get("count"))
    return lost if isinstance(lost, int) and not isinstance(lost, bool) and lost >= 0 else 1
