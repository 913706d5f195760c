"""JSON Schemas of what is read, the same for event streams, WebSockets and webhooks. Pure.

A test holds what servers say against them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from edgewake.cloud.access.slow.policy import Policy
from edgewake.cloud.rights.rights import End

Schema: TypeAlias = dict[str, Any]


def text(description: str, *, values: Sequence[str] = ()) -> Schema:
    """A string; one of `values` where there are some."""
    found: Schema = {"type": "string", "description": description}
    return found | ({"enum": list(values)} if values else {})


def whole(description: str) -> Schema:
    """An integer."""
    return {"type": "integer", "description": description}


def number(description: str) -> Schema:
    """Any number."""
    return {"type": "number", "description": description}


def truth(description: str) -> Schema:
    """True or false."""
    return {"type": "boolean", "description": description}


def items(of: Mapping[str, Any], description: str) -> Schema:
    """A list."""
    return {"type": "array", "items": dict(of), "description": description}


def or_null(schema: Schema) -> Schema:
    """Allow null, too."""
    return schema | {"type": [schema["type"], "null"]}


def thing(
    description: str,
    required: Mapping[str, Schema],
    optional: Mapping[str, Schema] | None = None,
    *,
    more: bool = False,
) -> Schema:
    """An object; `more`: with other keys, too."""
    return {
        "type": "object",
        "description": description,
        "required": list(required),
        "properties": {**required, **(optional or {})},
        "additionalProperties": more,
    }


def ref(kind: str, name: str) -> Schema:
    """A reference to a component."""
    return {"$ref": f"#/components/{kind}/{name}"}


CURSOR: Final = text("Where it stands: opaque, signed, good for every other way to read.")
AT: Final = whole("Milliseconds since 1970 UTC.")
LOST: Final = or_null(whole("Records of Kafka that are lost, at most; null: not known."))

READING: Final = thing(
    "A reading of a device, flat: beside these keys its own fields.",
    {
        "stream": text("Its stream."),
        "device": text("Its device."),
        "t": whole("Event time, ms since 1970 UTC, put right where the device's clock was wrong."),
        "received_at": whole("When the cloud had it, ms since 1970 UTC."),
    },
    {
        "epoch": or_null(whole("Another one when the device's log was made again.")),
        "seq": or_null(whole("Grows; orders a device's readings.")),
    },
    more=True,
)
RESULT: Final = thing(
    "A row of a continuous query: beside these keys its columns.",
    {"query": text("Its query."), "revision": whole("Grows; the last one of a window counts.")},
    {
        "window_start": or_null(AT),
        "window_end": or_null(AT),
        "final": truth("Does nothing change it any more?"),
        "withdrawn": truth("It was a row, and has been taken back."),
    },
    more=True,
)
SELECTED: Final = thing("The columns that `select` asked for.", {}, more=True)
WATERMARK: Final = thing(
    "Every window of this query that ends at or before this time is final.",
    {"query": text("The query."), "watermark": AT, "revision": whole("Of the last row before it.")},
    more=True,
)
GAP: Final = thing(
    "A counted, addressed range is lost.",
    {
        "scope": text(
            "Whose loss: of your cursor, of a device, of one event, of a record.",
            values=("cursor", "device", "event", "record"),
        ),
        "reason": text("Why: docs/access.md lists them."),
        "lost": LOST,
    },
    {
        "stream": text("Where."),
        "query": text("Where."),
        "device": text("Whose."),
        "partition": whole("In which partition."),
        "from": whole("First offset that is not shown."),
        "to": whole("First offset that is shown again."),
        "earliest": whole("First offset that is kept."),
        "continues": text("Where it goes on."),
    },
    more=True,
)
CHECKPOINT: Final = thing("The cursor stands here.", {"cursor": CURSOR})
WARNING: Final = thing(
    "What of a filter can hardly be meant.",
    {"code": text("For programs."), "detail": text("For people.")},
    {"field": text("The field."), "near": items({"type": "string"}, "What was perhaps meant.")},
    more=True,
)
BEHIND_FACTS: Final[Mapping[str, Schema]] = {
    "records": whole("Records of Kafka that wait, at most."),
    "seconds": number("Age of the oldest of them."),
    "policy": text("What is done about it.", values=tuple(Policy)),
}
BEHIND_MORE: Final[Mapping[str, Schema]] = {
    "events": whole("What they are to you, by what records were before them."),
    "acts_in": number("Seconds until that is done, at the least."),
}
BEHIND: Final = thing("You read more slowly than events come.", BEHIND_FACTS, BEHIND_MORE)
SUPERSEDED: Final = whole("Events that a later one of the same thing took the place of.")
CONFLATED: Final = thing("The events before it stand for others, too.", {"superseded": SUPERSEDED})
HEARTBEAT: Final = thing("Nothing came, and the connection lives.", {"at": AT})
PROBLEM: Final = thing(
    "Why a stream ends, or what is wrong with what was said.",
    {"code": text("For programs."), "detail": text("For people.")},
)
END: Final = thing(
    "It ends.",
    {"reason": text("Why.", values=(*End, "operator", "slow"))},
    {"detail": text("What the operator says."), **BEHIND_FACTS, **BEHIND_MORE},
)
ANY_EVENT: Final = {"anyOf": [READING, RESULT, SELECTED, WATERMARK, GAP]}
LISTED: Final = thing(
    "An event in a list: with `$event` a gap or a watermark, else a reading or a row.",
    {},
    {"$event": text("Its kind.", values=("gap", "watermark"))},
    more=True,
)
