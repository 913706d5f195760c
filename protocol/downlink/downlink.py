"""Messages from the cloud to a device, and the device's answers.

They are commands, settings and replies to its requests.

A message of QoS 1 on `ew/v1/<device>/down/<kind>`, JSON of at most MESSAGE_BYTES_MAX bytes, with
MQTT's message expiry interval: the seconds for which it is still worth doing, by the cloud's clock
when it was sent and counted down by the broker while it waits.

    ew/v1/car-07/down/command    {"id":"9f2c…","name":"restart_gps","args":["cold"]}
    ew/v1/car-07/down/settings   {"id":"41aa…","version":7,"text":"uplink.frame_readings_max = 500"}
    ew/v1/car-07/down/reply      {"id":"reply-r-17","state":"answered","body":"12.4 km"}

The `id` makes it one thing however often it comes: the cloud sends it again until it is answered or
over. The device answers once, by a reading of the stream `down_answers`, which goes the way of all
readings and so is never lost.
"""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import Final

from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.frame import STRING_CHARS_MAX
from edgewake.protocol.plain import Plain

MESSAGE_BYTES_MAX: Final = 64 * 1024
"""The largest message, bytes; a configuration has a few thousand. Over it: refused (oversize)."""
ARGS_MAX: Final = 16
"""The most arguments of a command."""
ARG_CHARS_MAX: Final = 1024
"""The longest argument, characters."""
EXPIRES_S_MAX: Final = 30 * 86_400
"""The longest life of a message: a device that sleeps longer is asked again."""
OUTPUT_CHARS_MAX: Final = STRING_CHARS_MAX // 2
"""The longest output of a command, or explanation, in its answer, characters."""
ID_PATTERN: Final = r"^[A-Za-z0-9_-]{1,64}$"
REQUEST_ID_PATTERN: Final = r"^[A-Za-z0-9_-]{1,56}$"
"""The pattern of a device's request id; with REPLY_PREFIX it is the id of the reply."""
REPLY_PREFIX: Final = "reply-"
"""The prefix of the ids of replies, and of nothing else."""
BODY_CHARS_MAX: Final = STRING_CHARS_MAX
"""The longest body of a request or a reply, characters."""

ANSWERS: Final = "down_answers"
"""The stream of the answers. Only agents write it, and its fields are given."""
ANSWER_FIELDS: Final = {
    "id": FieldType.STRING,
    "kind": FieldType.STRING,
    "state": FieldType.STRING,
    "detail": FieldType.STRING,
    "name": FieldType.STRING,
    "version": FieldType.NUMBER,
    "exit_code": FieldType.NUMBER,
    "output": FieldType.STRING,
}
REQUESTS: Final = "device_requests"
"""The stream of requests (`edgewake.protocol.downlink.request`). Its fields are given."""
REQUEST_WRONG: Final = "wrong"
"""What a bridge writes into a request that it had to cut: why its reply is a refusal."""
REQUEST_FIELDS: Final = {
    "id": FieldType.STRING,
    "name": FieldType.STRING,
    "body": FieldType.STRING,
    "expires_s": FieldType.NUMBER,
    REQUEST_WRONG: FieldType.STRING,
}
REPLIES: Final = "ew_replies"
"""The stream of a device's log that holds the replies."""

FEED: Final = "feed"
"""The last level of both topics of a feed (`edgewake.protocol.downlink.feed`)."""
FEED_WAIT_S: Final = 20.0
"""Seconds that a bridge waits for an event of a feed before it answers that there is nothing."""


class DownKind(StrEnum):
    """The last level of the topic."""

    COMMAND = "command"
    SETTINGS = "settings"
    REPLY = "reply"


class AnswerState(StrEnum):
    """The outcomes of a message at the device."""

    DONE = "done"
    """The command ended with exit code 0; the settings are in use; the reply is kept."""
    TRYING = "trying"
    """The settings are in use and watched; how it ends is said by another answer."""
    FAILED = "failed"
    """It ended with another code, took too long, or could not be started."""
    REFUSED = "refused"
    """It is not allowed on this device, or wrong; nothing was done."""
    EXPIRED = "expired"
    """It was over before it was begun; nothing was done."""
    INTERRUPTED = "interrupted"
    """The agent ended while it ran: nobody knows how far it came, and it is not run again."""
    ROLLED_BACK = "rolled_back"
    """The device was not well with the settings, and went back to those before."""


class Answer(Plain):
    """The outcome of a message, as one reading of ANSWERS reports it."""

    id: str
    kind: DownKind
    state: AnswerState
    detail: str = ""
    """The reason, for people."""
    name: str | None = None
    """The command's name."""
    version: int | None = None
    """The version of the settings that the device uses after it."""
    exit_code: int | None = None
    """The exit code of a command that ended by itself; negative: the signal that ended it."""
    output: str | None = None
    """What a command wrote, its first characters."""

    def fields(self) -> dict[str, str | int]:
        """The fields of the reading."""
        shortened = {
            "detail": self.detail[:OUTPUT_CHARS_MAX],
            "output": self.output and self.output[:OUTPUT_CHARS_MAX],
        }
        found = asdict(self) | shortened
        return {
            name: str(value) if isinstance(value, str) else value
            for name, value in found.items()
            if value not in (None, "")
        }
