"""A message of the downlink (`edgewake.protocol.downlink.downlink`) as it is read and checked."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, TypeAlias

import orjson

from edgewake.protocol.downlink.downlink import (
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
from edgewake.protocol.frames.frame import COUNTER_MAX, Scalar
from edgewake.protocol.names import DEVICE_PATTERN, FIELD_PATTERN
from edgewake.protocol.plain import Check, Length, Plain, key
from edgewake.protocol.plain_json import Misshapen, read


def _without_nul(arg: str) -> str:
    if "\0" in arg:
        raise ValueError("expected an argument without NUL")
    return arg


Arg = Annotated[str, Length(0, ARG_CHARS_MAX), Check(_without_nul)]
"""An argument of a command, as a program can take it."""
Args = Annotated[tuple[Arg, ...], Length(0, ARGS_MAX)]


class Message(Plain):
    """The fields of every message. A later version may add keys."""

    id: str = key(pattern=ID_PATTERN)
    """Chosen by the cloud and different for each message, but the same when it is sent again."""


class Command(Message):
    """Do what the device's configuration calls `name`."""

    name: str = key(pattern=f"^{FIELD_PATTERN.pattern}$")
    args: Args = ()
    """Arguments after those of the device's configuration, as far as that allows any."""
    thing: str = key(default="", pattern=f"^({DEVICE_PATTERN.pattern})?$")
    """The thing behind the device that it is for; empty: the device itself."""


class Settings(Message):
    """Asks the device to use this configuration from now on."""

    version: int = key(ge=1, le=COUNTER_MAX)
    """The version, which grows with each; one older than the device's is refused."""
    text: str
    """TOML: the tables of the agent's configuration that may be changed from afar."""


class ReplyState(StrEnum):
    """The outcomes of a request."""

    ANSWERED = "answered"
    """The service answered the request."""
    REFUSED = "refused"
    """The service or the cloud refused it: there is no such service, it is wrong, or too many wait;
    `detail` says which."""
    EXPIRED = "expired"
    """Nobody answered in time."""


class Reply(Message):
    """The outcome of a request of this device (`edgewake.protocol.downlink.request`)."""

    id: str = key(pattern=f"^{REPLY_PREFIX}[A-Za-z0-9_-]{{1,56}}$")
    state: ReplyState
    body: str = key(default="", max_length=BODY_CHARS_MAX)
    detail: str = key(default="", max_length=OUTPUT_CHARS_MAX)
    """The reason, for people."""
    thing: str = key(default="", pattern=f"^({DEVICE_PATTERN.pattern})?$")
    """The thing behind this device that asked; empty: the device itself."""

    @property
    def request(self) -> str:
        """The id of the request."""
        return self.id.removeprefix(REPLY_PREFIX)

    def fields(self) -> dict[str, Scalar]:
        """The fields of the reading that the device keeps."""
        return {
            "id": self.request,
            "state": self.state.value,
            "body": self.body,
            "detail": self.detail,
        }


AnyMessage: TypeAlias = Command | Settings | Reply
_FORMS: Final[dict[DownKind, type[AnyMessage]]] = {
    DownKind.COMMAND: Command,
    DownKind.SETTINGS: Settings,
    DownKind.REPLY: Reply,
}


def decode(kind: str, payload: bytes) -> AnyMessage:
    """Read a message of this kind. Raises Rejected(topic | oversize | json | shape)."""
    if kind not in _FORMS:
        raise Rejected(RejectReason.TOPIC, f"kind {kind[:64]!r}: expected {' or '.join(_FORMS)}")
    if len(payload) > MESSAGE_BYTES_MAX:
        raise Rejected(
            RejectReason.OVERSIZE, f"{len(payload)} bytes: expected at most {MESSAGE_BYTES_MAX}"
        )
    try:
        return read(_FORMS[DownKind(kind)], payload)
    except orjson.JSONDecodeError as error:
        raise Rejected(RejectReason.JSON, f"{kind}: {error}"[:OUTPUT_CHARS_MAX]) from error
    except Misshapen as error:
        raise Rejected(
            RejectReason.SHAPE, f"{error.where or kind}: {error.expected}"[:OUTPUT_CHARS_MAX]
        ) from error


def check_life(expires_s: int | None) -> int:
    """The message expiry interval of a message, in seconds. Raises Rejected(shape)."""
    if expires_s is None or not 0 <= expires_s <= EXPIRES_S_MAX:
        raise Rejected(
            RejectReason.SHAPE,
            f"message expiry interval {expires_s}: expected 0 to {EXPIRES_S_MAX} seconds",
        )
    return expires_s
