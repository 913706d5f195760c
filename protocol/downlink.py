"""What the cloud sends to a device: commands, settings and replies to its requests, and what the device answers.

A message of QoS 1 on `ew/v1/<device>/down/<kind>`, JSON of at most MESSAGE_BYTES_MAX bytes, with MQTT's message expiry interval: the
seconds for which it is still worth doing, by the cloud's clock when it was sent and counted down by the broker while it waits.

    ew/v1/car-07/down/command    {"id":"9f2c…","name":"restart_gps","args":["cold"]}
    ew/v1/car-07/down/settings   {"id":"41aa…","version":7,"text":"uplink.frame_readings_max = 500"}
    ew/v1/car-07/down/reply      {"id":"reply-r-17","state":"answered","body":"12.4 km"}

The `id` makes it one thing however often it comes: the cloud sends it again until it is answered or over. The device answers once, by a
reading of the stream `down_answers`, which goes the way of all readings and so is never lost.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frame import COUNTER_MAX, STRING_CHARS_MAX, Scalar
from edgewake.protocol.names import FIELD_PATTERN
from edgewake.protocol.stream import FieldType

MESSAGE_BYTES_MAX: Final = 64 * 1024
"""Bytes of a message. A configuration has a few thousand. Over it: refused (oversize)."""
ARGS_MAX: Final = 16
"""Arguments of a command."""
ARG_CHARS_MAX: Final = 1024
"""Characters of an argument."""
EXPIRES_S_MAX: Final = 30 * 86_400
"""Longest life of a message: a device that sleeps longer is asked anew."""
OUTPUT_CHARS_MAX: Final = STRING_CHARS_MAX // 2
"""Characters of a command's output, or of an explanation, in its answer."""
ID_PATTERN: Final = r"^[A-Za-z0-9_-]{1,64}$"
REQUEST_ID_PATTERN: Final = r"^[A-Za-z0-9_-]{1,56}$"
"""Of a device's request: with REPLY_PREFIX it is the id of the reply."""
REPLY_PREFIX: Final = "reply-"
"""Begins the ids of replies, and of nothing else."""
BODY_CHARS_MAX: Final = STRING_CHARS_MAX
"""Characters of a request's body, and of a reply's."""

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


def _without_nul(arg: str) -> str:
    if "\0" in arg:
        raise ValueError("expected an argument without NUL")
    return arg


_Arg = Annotated[str, Field(max_length=ARG_CHARS_MAX, json_schema_extra={"pattern": r"^[^\x00]*$"}), AfterValidator(_without_nul)]
Args = Annotated[tuple[_Arg, ...], Field(max_length=ARGS_MAX, strict=False)]
"""Arguments of a command, as a program can take them."""


class DownKind(StrEnum):
    """The last level of the topic."""

    COMMAND = "command"
    SETTINGS = "settings"
    REPLY = "reply"


class AnswerState(StrEnum):
    """How it ended on the device."""

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


class Message(BaseModel):
    """What all of them have. A later version may add keys."""

    model_config = ConfigDict(frozen=True, strict=True)

    id: Annotated[str, Field(pattern=ID_PATTERN)]
    """Chosen by the cloud, another one for each message; the same whenever it is sent again."""


class Command(Message):
    """Do what the device's configuration calls `name`."""

    name: Annotated[str, Field(pattern=f"^{FIELD_PATTERN.pattern}$")]
    args: Args = ()
    """Added to those that the device's configuration gives, as far as it allows any."""


class Settings(Message):
    """Use this configuration from now on."""

    version: Annotated[int, Field(ge=1, le=COUNTER_MAX)]
    """Grows with each; an older one than the device has is refused."""
    text: str
    """TOML: the tables of the agent's configuration that may be changed from afar."""


class ReplyState(StrEnum):
    """How a request ended."""

    ANSWERED = "answered"
    """By whoever serves it."""
    REFUSED = "refused"
    """By whoever serves it, or by the cloud: nobody serves it, it is wrong, or too many wait; `detail` says which."""
    EXPIRED = "expired"
    """Nobody answered in time."""


class Reply(Message):
    """What became of a request of this device (`edgewake.protocol.request`)."""

    id: Annotated[str, Field(pattern=f"^{REPLY_PREFIX}[A-Za-z0-9_-]{{1,56}}$")]
    state: ReplyState
    body: Annotated[str, Field(max_length=BODY_CHARS_MAX)] = ""
    detail: Annotated[str, Field(max_length=OUTPUT_CHARS_MAX)] = ""
    """Why, for people."""

    @property
    def request(self) -> str:
        """The id of the request."""
        return self.id.removeprefix(REPLY_PREFIX)

    def fields(self) -> dict[str, Scalar]:
        """Of the reading that the device keeps."""
        return {"id": self.request, "state": self.state.value, "body": self.body, "detail": self.detail}


AnyMessage: TypeAlias = Command | Settings | Reply
_FORMS: Final[dict[DownKind, type[Message]]] = {DownKind.COMMAND: Command, DownKind.SETTINGS: Settings, DownKind.REPLY: Reply}


def decode(kind: str, payload: bytes) -> AnyMessage:
    """Read a message of this kind. Raises Rejected(topic | oversize | json | shape)."""
    if kind not in _FORMS:
        raise Rejected(RejectReason.TOPIC, f"kind {kind[:64]!r}: expected {' or '.join(_FORMS)}")
    if len(payload) > MESSAGE_BYTES_MAX:
        raise Rejected(RejectReason.OVERSIZE, f"{len(payload)} bytes: expected at most {MESSAGE_BYTES_MAX}")
    try:
        message: Any = _FORMS[DownKind(kind)].model_validate_json(payload)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        reason = RejectReason.JSON if first["type"] == "json_invalid" else RejectReason.SHAPE
        raise Rejected(reason, f"{'.'.join(map(str, first['loc'])) or kind}: {first['msg']}"[:OUTPUT_CHARS_MAX]) from error
    found: AnyMessage = message
    return found


def check_life(expires_s: int | None) -> int:
    """The message expiry interval of a message, in seconds. Raises Rejected(shape)."""
    if expires_s is None or not 0 <= expires_s <= EXPIRES_S_MAX:
        raise Rejected(RejectReason.SHAPE, f"message expiry interval {expires_s}: expected 0 to {EXPIRES_S_MAX} seconds")
    return expires_s


class Answer(BaseModel):
    """How a message ended, as one reading of ANSWERS says it."""

    model_config = ConfigDict(frozen=True)

    id: str
    kind: DownKind
    state: AnswerState
    detail: str = ""
    """Why, for people."""
    name: str | None = None
    """Of a command."""
    version: int | None = None
    """Of the settings that the device uses after it."""
    exit_code: int | None = None
    """Of a command that ended by itself; negative: the signal that ended it."""
    output: str | None = None
    """What a command wrote, its first characters."""

    def fields(self) -> dict[str, str | int]:
        """Of the reading."""
        shortened = {"detail": self.detail[:OUTPUT_CHARS_MAX], "output": self.output and self.output[:OUTPUT_CHARS_MAX]}
        found = self.model_dump(mode="json", exclude_none=True) | {name: text for name, text in shortened.items() if text}
        return {name: value for name, value in found.items() if value != ""}
