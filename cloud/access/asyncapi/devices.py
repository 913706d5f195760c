"""What devices and bridges say by MQTT: topics as `edgewake.protocol.topics` names them. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from edgewake.cloud.access.asyncapi.schemas import (
    AT,
    CURSOR,
    Schema,
    items,
    number,
    or_null,
    text,
    thing,
    whole,
)
from edgewake.protocol import topics
from edgewake.protocol.downlink.downlink import ARGS_MAX, FEED, ID_PATTERN, DownKind
from edgewake.protocol.frames.ack import RETRY_AFTER_MS_MAX, TOKEN_PATTERN
from edgewake.protocol.frames.frame import FRAME_TYPE, FRAME_ZSTD_TYPE
from edgewake.protocol.ops.device import DeviceState

DEVICE, STREAM, THING, GATEWAY = "{device}", "{stream}", "{thing}", "{gateway}"

PLAIN: Final = thing(
    "A reading of a device without an agent: its fields, and if it likes these.",
    {},
    {
        "t": whole("Event time, ms since 1970 UTC; left out: the time of arrival."),
        "seq": whole("Grows; with it a message that is sent twice is counted once."),
        "epoch": whole("Of `seq`: another one when that begins again."),
        "device": text("As the topic says it."),
    },
    more=True,
)
FRAME: Final = thing(
    "A frame of an agent: readings of one stream in columns.",
    {
        "epoch": whole("Another one when the device's log was made again."),
        "frame": whole("Number of the frame; it is counted once."),
        "seq": whole("Number of its first reading."),
        "t": items({"type": "integer"}, "Event times, ms since 1970 UTC."),
        "fields": thing("A column for each field; null where it is absent.", {}, more=True),
    },
    {
        "gap": thing("What the device gave up.", {"reason": text("Why."), "count": whole("Many.")}),
        "first_frame": whole("The first frame that the device still has."),
    },
    more=True,
)
TOKEN: Final = {"type": "string", "pattern": TOKEN_PATTERN, "description": "A place in Kafka."}
KEPT: Final = thing("All in-sync replicas have it.", {"token": TOKEN})
REFUSED: Final = thing(
    "It is a dead letter; do not send it again.",
    {"token": TOKEN, "rejected": text("Why."), "detail": text("For people.")},
)
LATER: Final = thing(
    "Nothing is kept; send it again.",
    {
        "later": text("Why."),
        "retry_after_ms": whole("Wait so long.") | {"maximum": RETRY_AFTER_MS_MAX},
    },
    {"detail": text("For people.")},
)
MESSAGE_ID: Final = {"type": "string", "pattern": ID_PATTERN, "description": "Makes it one thing."}
COMMAND: Final = thing(
    "Do what the device's configuration calls `name`.",
    {"id": MESSAGE_ID, "name": text("An entry of the device's own allow-list.")},
    {"args": items({"type": "string"}, "Added to its own.") | {"maxItems": ARGS_MAX}},
    more=True,
)
SETTINGS: Final = thing(
    "Use this configuration from now on.",
    {"id": MESSAGE_ID, "version": whole("Grows."), "text": text("TOML.")},
    more=True,
)
REPLY: Final = thing(
    "What was asked for.",
    {"id": MESSAGE_ID, "state": text("How it ended.")},
    {"body": text("The answer."), "detail": text("For people.")},
    more=True,
)
STATUS: Final = thing(
    "What a device says of itself, at birth, every ten seconds, and as its last will.",
    {"device": text("Itself."), "state": text("", values=tuple(DeviceState))},
    {
        "sent_at": or_null(AT),
        "connected_at": or_null(AT),
        "epoch": or_null(whole("Of its log.")),
        "backlog_readings": or_null(whole("Accepted and not yet acknowledged.")),
        "backlog_bytes": or_null(whole("The same in bytes.")),
        "oldest_unacked_s": or_null(number("Age of the oldest of them.")),
        "lost_readings": whole("Given up since the log was made; each is a gap, too."),
        "version": text("The agent's."),
    },
    more=True,
)
FEED_QUESTION: Final = thing(
    "What others sent, from a cursor on.",
    {"feed": text("As the device calls it."), "streams": items({"type": "string"}, "Streams.")},
    {"begin": text("Where it begins."), "after": text("The cursor, or empty.")},
    more=True,
)
FEED_CHUNK: Final = thing(
    "What follows the cursor.",
    {
        "feed": text("As the device calls it."),
        "after": text("The cursor of the question."),
        "cursor": CURSOR,
        "events": items({"type": "object"}, "In their order."),
    },
    more=True,
)
JOINED: Final = items(
    {
        "type": "array",
        "minItems": 2,
        "maxItems": 2,
        "items": {"anyOf": [{"type": "string"}, KEPT, REFUSED, LATER]},
    },
    "Pairs of correlation data (or `stream|seq`) and answer; a token alone: kept.",
)


class Topic(NamedTuple):
    """A topic: who says what."""

    name: str
    address: str
    meaning: str
    is_from_device: bool
    messages: dict[str, Schema]
    content_types: dict[str, str]


def mqtt_topics() -> list[Topic]:
    """All that devices publish or subscribe."""
    down = {
        DownKind.COMMAND.value: COMMAND,
        DownKind.SETTINGS.value: SETTINGS,
        DownKind.REPLY.value: REPLY,
        FEED: FEED_CHUNK,
    }
    up = topics.up(DEVICE, STREAM)
    answers = {"kept": KEPT, "refused": REFUSED, "later": LATER}
    frame_types = {"frame": FRAME_TYPE, "packedFrame": FRAME_ZSTD_TYPE}
    return [
        Topic("readings", up, "Readings.", True,
              {"plainReading": PLAIN, "frame": FRAME, "packedFrame": FRAME}, frame_types),
        Topic("askedReadings", up + topics.ASKING_SUFFIX,
              "The same, of a device without response topics that wants an answer on `acks`.",
              True, {"plainReading": PLAIN}, {}),
        Topic("readingsOfThing", topics.up(GATEWAY, topics.of_thing(STREAM, THING)),
              "The same, of a thing behind a gateway: from here on it is a device of its own.",
              True, {"plainReading": PLAIN, "frame": FRAME, "packedFrame": FRAME}, frame_types),
        Topic("acknowledgement", topics.ack(DEVICE), "One answer.", False, answers, {}),
        Topic("acknowledgements", topics.acks(DEVICE), "Several answers, as agents ask.", False,
              {"answers": JOINED}, {}),
        *(
            Topic(f"down_{kind}", topics.down(DEVICE, kind), schema["description"],
                  False, {kind: schema}, {})
            for kind, schema in down.items()
        ),
        Topic("question", topics.feed(DEVICE), "Questions for what others sent.", True,
              {"question": FEED_QUESTION}, {}),
        Topic("status", topics.status(DEVICE), "Birth, status and last will.", True,
              {"status": STATUS}, {}),
    ]  # fmt: skip
