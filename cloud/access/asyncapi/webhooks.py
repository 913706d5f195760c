"""What endpoints are called with, signed by Standard Webhooks. Pure."""

from __future__ import annotations

from typing import Final

from edgewake.cloud.access.asyncapi.schemas import (
    CURSOR,
    LISTED,
    Schema,
    items,
    or_null,
    text,
    thing,
    truth,
    whole,
)
from edgewake.protocol.leases.lease import Urgency
from edgewake.protocol.ops.alert import Severity

HEADERS: Final = thing(
    "Standard Webhooks: the signature is of `id.timestamp.body`, with the endpoint's secret. "
    "The endpoint's own headers come with them.",
    {
        "webhook-id": text("The same in each attempt: drop what you had."),
        "webhook-timestamp": text("Of this attempt, seconds since 1970 UTC; refuse an old one."),
        "webhook-signature": text("`v1,BASE64`; two of them while a secret is changed."),
    },
    more=True,
)


def _type(name: str) -> Schema:
    return {"type": "string", "const": name}


CALLS: Final[dict[str, Schema]] = {
    "edgewake.events": thing(
        "The next events of a delivery, in order (docs/deliveries.md).",
        {
            "type": _type("edgewake.events"),
            "timestamp": text("When the batch was made."),
            "delivery": text("Its name."),
            "batch": whole("Grows."),
            "cursor": CURSOR,
            "events": items(LISTED, "In their order."),
        },
        {"replayed": truth("It was a dead letter.")},
    ),
    "edgewake.test": thing(
        "A try-out.",
        {
            "type": _type("edgewake.test"),
            "delivery": text("Its name."),
            "events": items({"type": "object"}, "None.") | {"maxItems": 0},
        },
    ),
    "edgewake.wake": thing(
        "A sleeping client's events wait: go on from your cursor (docs/push.md). A client that "
        "nobody can call gets the same from `GET /v1/leases/{id}/wake`.",
        {
            "type": _type("edgewake.wake"),
            "timestamp": text("When it was decided."),
            "lease": text("The client's lease."),
            "cursor": or_null(CURSOR),
            "count": whole("Events that wait."),
            "capped": truth("Are there more than `count`?"),
            "gap": truth("Is part of the range no longer kept?"),
            "urgency": text("", values=tuple(Urgency)),
            "again": whole("How often it was woken since it last went on."),
            "streams": items({"type": "string"}, "Where they are."),
            "events": items({"type": "object"}, "The first of them, as far as they fit."),
        },
    ),
    "edgewake.alert": thing(
        "An alert rule has something to say (docs/alerts.md).",
        {
            "type": _type("edgewake.alert"),
            "timestamp": text("When the note was made."),
            "id": text("As `webhook-id`: the same in each attempt."),
            "rule": text("The rule's name."),
            "severity": text("", values=tuple(Severity)),
            "title": text("One line, for people."),
            "body": text("The rest, for people."),
            "firing": items({"type": "string"}, "Keys that fire, the first of them."),
            "resolved": items({"type": "string"}, "Keys that do no more."),
            "more": whole("Keys that are not named."),
            "field": text("The field of the values; empty: each is a text of its own."),
            "unit": text("The unit of the values; empty: none is known."),
            "values": {
                "type": "object",
                "description": "Key → its value, of the keys that are named and have one.",
                "additionalProperties": {"type": "string"},
            },
        },
    ),
}
