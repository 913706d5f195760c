"""A message of the downlink (`edgewake.protocol.downlink`) as it is read and checked."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from edgewake.protocol.downlink import (
    ARG_CHARS_MAX,
    ARGS_MAX,
    BODY_CHARS_MAX,
    EXPIRES_S_MAX,
    ID_PATTERN,
    MESSAGE_BYTES_MAX,
    OUTPUT_CHARS_MAX,
    REPLY_PREFIX,
    DownKind,
)
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frame import COUNTER_MAX, Scalar
from edgewake.protocol.names import FIELD_PATTERN


def _without_nul(arg: str) -> str:
    if "\0" in arg:
        raise ValueError("expected an argument without NUL")
    return arg


_Arg = Annotated[str, Field(max_length=ARG_CHARS_MAX, json_schema_extra={"pattern": r"^[^\x00]*$"}), AfterValidator(_without_nul)]
Args = Annotated[tuple[_Arg, ...], Field(max_length=ARGS_MAX, strict=False)]
"""Arguments of a command, as a program can take them."""


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
