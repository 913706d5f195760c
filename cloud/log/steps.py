"""The events of a view for clients that send them one by one: JSON, and the position after each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import orjson

from edgewake.cloud.log.decode import Event
from edgewake.cloud.log.reader import Batch, Step

EVENT_BYTES: Final = 200
"""Memory of a step beside its event's data, roughly."""


class Steps:
    """An encoding (`edgewake.cloud.log.following.view.Encoding`)."""

    name = "page"
    event_bytes = 0

    def encode(self, batch: Batch) -> tuple[Sequence[Step], int]:
        """The events of a batch, and their memory, roughly."""
        return tuple(batch.steps), sum(len(step.event.data) + EVENT_BYTES for step in batch.steps)


def item(event: Event) -> bytes:
    """An event as an object: one that has a kind says it."""
    if not event.kind:
        return event.data
    head = b'{"$event":%b' % orjson.dumps(event.kind)
    return head + (b"}" if event.data == b"{}" else b"," + event.data[1:])
