"""Dead letters, newest first."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import Message
from pydantic import BaseModel, ValidationError

from edgewake.cloud.ops.kafka_lookup import KafkaLookup
from edgewake.protocol import topics
from edgewake.protocol.dead_letter import DeadLetter

SCANNED_MAX: Final = 5000
"""Letters looked at for one page; where a filter finds fewer than asked for, `next` goes on from there."""
CHUNK: Final = 500
"""Letters read at once, backwards."""
PREVIEW_CHARS: Final = 200


class DeadLetterView(BaseModel):
    """A refused message, without its payload."""

    offset: int
    device: str
    reason: str
    detail: str
    topic: str
    part: str
    received_at: int
    content_type: str
    bytes: int
    preview: str
    """The first 200 characters of the payload, what is not UTF-8 replaced."""


class DeadLetterPage(BaseModel):
    """Newest first."""

    items: list[DeadLetterView]
    next: int | None
    """`before` of the next page; None at the oldest."""
    kept: int
    """Letters kept at most, gaps by retention not counted."""


def page(lookup: KafkaLookup, *, before: int | None, limit: int, reason: str | None, device: str | None) -> DeadLetterPage:
    """Up to `limit` letters older than offset `before` that match."""
    low, high = lookup.range(topics.DEAD, 0)
    end = floor = min(high, before) if before is not None else high
    stop = max(low, end - SCANNED_MAX)
    found: list[DeadLetterView] = []
    while end > stop and len(found) < limit:
        first = max(stop, end - CHUNK)
        views = [_view(message) for message in lookup.scan(topics.DEAD, 0, first, end)]
        for letter in reversed(views):
            if len(found) < limit and _matches(letter, reason, device):
                found.append(letter)
                floor = letter.offset
        end = first
    oldest_seen = floor if len(found) >= limit else end
    return DeadLetterPage(items=found, next=oldest_seen if oldest_seen > low else None, kept=high - low)


def _matches(letter: DeadLetterView, reason: str | None, device: str | None) -> bool:
    return (reason is None or letter.reason == reason) and (device is None or letter.device == device)


def _view(message: Message) -> DeadLetterView:
    value = message.value() or b""
    try:
        why: dict[str, Any] = DeadLetter.from_headers(message.headers() or ()).model_dump()
    except ValidationError:  # not one of ours; still a letter, and shown
        why = {"reason": "unknown", "detail": "", "topic": "", "part": "", "received_at": message.timestamp()[1], "content_type": ""}
    return DeadLetterView(
        offset=message.offset(),
        device=(message.key() or b"").decode("utf-8", "replace"),
        bytes=len(value),
        preview=value[: PREVIEW_CHARS * 4].decode("utf-8", "replace")[:PREVIEW_CHARS],
        **why,
    )


def payload(lookup: KafkaLookup, offset: int) -> tuple[bytes, DeadLetterView]:
    """A letter whole. Raises OutOfRange."""
    message = lookup.record(topics.DEAD, 0, offset)
    return message.value() or b"", _view(message)
