"""The messages of a WebSocket, both ways. Pure."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel

from edgewake.cloud.access.asyncapi import schemas
from edgewake.cloud.access.asyncapi.schemas import (
    ANY_EVENT,
    BEHIND_FACTS,
    BEHIND_MORE,
    CURSOR,
    SUPERSEDED,
    Schema,
    items,
    text,
    thing,
    whole,
)
from edgewake.cloud.access.sockets import words

SAID: Final[tuple[type[BaseModel], ...]] = (
    words.Subscribe,
    words.Credit,
    words.Change,
    words.Ack,
    words.Unsubscribe,
)
ID: Final = text("The subscription, as its client calls it.")
EVENT: Final = thing(
    "One event, with the cursor behind it.",
    {"cursor": CURSOR, "data": ANY_EVENT},
    {
        "event": text(
            "Its kind, where it is neither a reading nor a row.", values=("gap", "watermark")
        )
    },
)
HEARD: Final[dict[str, tuple[str, dict[str, Schema], dict[str, Schema]]]] = {
    "subscribed": (
        "It is open, and begins at `cursor`.",
        {"id": ID, "start": text("earliest, latest, time, resumed, gap or stopped.")},
        {"cursor": CURSOR, "credits": whole("Events that may be sent.")},
    ),
    "events": (
        "The next events.",
        {"id": ID, "events": items(EVENT, "In their order.")},
        {"superseded": SUPERSEDED},
    ),
    "gap": (
        "What of the range behind the last cursor is lost.",
        {"id": ID, "cursor": CURSOR, "data": schemas.GAP},
        {},
    ),
    "checkpoint": (
        "It has come so far without an event to show.",
        {"id": ID, "cursor": CURSOR},
        {},
    ),
    "changed": ("The new filter holds from here.", {"id": ID, "cursor": CURSOR}, {}),
    "behind": (
        "It takes less than there is.",
        {"id": ID, **BEHIND_FACTS, "waits_for": text("For what.", values=("credit", "connection"))},
        {**BEHIND_MORE, "credits": whole("Those that are left.")},
    ),
    "acked": ("The kept cursor stands here.", {"id": ID, "cursor": CURSOR}, {}),
    "warning": (
        "What of a filter can hardly be meant.",
        {"id": ID, "code": text("For programs."), "detail": text("For people.")},
        {"field": text("The field."), "near": items({"type": "string"}, "What was perhaps meant.")},
    ),
    "end": (
        "It is over; go on from `cursor`, here or elsewhere.",
        {"id": ID, "reason": text("Why: docs/websocket.md lists them.")},
        {
            "cursor": CURSOR,
            "detail": text("What the operator says."),
            **BEHIND_FACTS,
            **BEHIND_MORE,
        },
    ),
    "heartbeat": ("Nothing happened.", {"at": schemas.AT}, {}),
    "problem": (
        "What is wrong with what was said, or why a subscription ends.",
        {"code": text("For programs."), "detail": text("For people.")},
        {
            "id": ID,
            "where": text("Which part of the message."),
            "expected": text("What would be right."),
            "retry_after_s": whole("Seconds to wait before it is said again."),
            "near": items({"type": "string"}, "Streams that were perhaps meant."),
        },
    ),
}
"""What each `type` means, what it always has, and what it may have."""


def said() -> dict[str, Schema]:
    """What a client may say."""
    return {kind(model): _schema(model) for model in SAID}


def kind(model: type[BaseModel]) -> str:
    """The `type` of a message."""
    return str(model.__name__.lower())


def _schema(model: type[BaseModel]) -> Schema:
    found: dict[str, Any] = model.model_json_schema(by_alias=True)
    found.pop("title", None)
    for one in found["properties"].values():
        one.pop("title", None)
    found["required"] = sorted({*found.get("required", ()), "type"})
    return found


def heard() -> dict[str, Schema]:
    """What a server says."""
    return {
        name: thing(meaning, {"type": {"type": "string", "const": name}, **required}, optional)
        for name, (meaning, required, optional) in HEARD.items()
    }
