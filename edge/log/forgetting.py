"""Consumers that the configuration no longer names: what they had not read would be kept for nobody, up to `log.consumer_bytes`."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgewake.edge.log.event_log import EventLog

log = logging.getLogger("edgewake.log")


async def forget_others(events: EventLog, prefix: str, wanted: Collection[str]) -> None:
    """Remove the consumers whose name begins with `prefix`, but the wanted ones. Raises LogClosedError, sqlite3.Error."""
    for name in sorted(events.consumers() - set(wanted)):
        if name.startswith(prefix):
            await events.forget_consumer(name)
            log.info("%s is no longer configured", name, extra={"event": "consumer.forgotten", "consumer": name})
