"""The messages of a client on a WebSocket: one JSON object a message. Pure.

    subscribe     id, streams or publication, where, select, devices, sample, conflate, max_rate,
                  per, after or from, on_gap, credits, name, slow, slow_after
    credit        id, credits             this many events more
    change        id, and of these words those that are to be others, while it is open
    unsubscribe   id
    ack           id, cursor              keep this cursor under the subscription's name, from
                                          which the next subscribe with that name goes on

`read` raises WordsError, which says where in the message something is wrong and what was expected.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from edgewake.cloud.log.wanted import DEVICES_MAX
from edgewake.protocol.cursor import TEXT_MAX
from edgewake.protocol.expectation import expectation
from edgewake.protocol.names import STREAMS_PER_SUBSCRIPTION_MAX

CREDITS_MAX: Final = 1_000_000_000
"""Events that may be allowed at a time: a larger number means no bound, which is said by none."""
ID_CHARS_MAX: Final = 64
SHOWN_MAX: Final = 40
"""Characters of a client's text that are repeated to it."""

Id: TypeAlias = Annotated[str, Field(min_length=1, max_length=ID_CHARS_MAX)]
Streams: TypeAlias = Annotated[
    tuple[str, ...], Field(min_length=1, max_length=STREAMS_PER_SUBSCRIPTION_MAX)
]
Credits: TypeAlias = Annotated[int, Field(ge=1, le=CREDITS_MAX, strict=True)]


class WordsError(Exception):
    """A message that cannot be understood. `name`: the subscription that it names, if it does."""

    def __init__(self, code: str, detail: str, *, where: str, expected: str, name: str | None):
        super().__init__(detail)
        self.code, self.detail, self.where = code, detail, where
        self.expected, self.name = expected, name


class _Words(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Id
    """Chosen by the client; it stands in every message about this subscription."""


class _Chosen(_Words):
    """The fields that choose what is read."""

    streams: Streams | None = None
    publication: Annotated[str, Field(max_length=64)] | None = None
    """In the place of streams."""
    where: str | None = None
    select: str | None = None
    devices: Annotated[tuple[str, ...], Field(max_length=DEVICES_MAX)] | None = None
    """These alone."""
    sample: str | float | None = None
    conflate: str | int | None = None
    max_rate: str | float | None = None
    per: str | None = None
    slow: Annotated[str, Field(max_length=SHOWN_MAX)] | None = None
    """What is done when its client takes less than there is, as for event streams."""
    slow_after: Annotated[int, Field(strict=True)] | None = None
    """Seconds before that."""


SLOW: Final = ("slow", "slow_after")
CHOSEN: Final = ("where", "select", "devices", "sample", "conflate", "max_rate", "per")
KEPT: Final = ("streams", "publication", *CHOSEN, *SLOW)
"""What a change adds to."""


class Subscribe(_Chosen):
    """Open a subscription."""

    type: Literal["subscribe"]
    after: str | None = None
    """A cursor, of whatever protocol it came."""
    start: Annotated[str | int | None, Field(alias="from")] = None
    on_gap: str | None = None
    credits: Annotated[int, Field(ge=0, le=CREDITS_MAX, strict=True)] | None = None
    """Events that may be sent; None: as many as the connection takes."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] | None = None
    """Under which the server keeps what is acknowledged; without `after` it begins there."""


class Credit(_Words):
    """Allow more events."""

    type: Literal["credit"]
    credits: Credits


class Change(_Chosen):
    """Other streams, another filter, pace or policy for a slow reader.

    What is left out stays, null removes it.
    """

    type: Literal["change"]
    start: Annotated[str | int | None, Field(alias="from")] = None
    """Where streams begin that are new."""


class Ack(_Words):
    """Keep a cursor."""

    type: Literal["ack"]
    cursor: Annotated[str, Field(max_length=TEXT_MAX)]


class Unsubscribe(_Words):
    """End a subscription."""

    type: Literal["unsubscribe"]


Words: TypeAlias = Subscribe | Credit | Change | Ack | Unsubscribe
_READ: Final = TypeAdapter[Words](Annotated[Words, Field(discriminator="type")])


def read(text: str) -> Words:
    """What a message says. Raises WordsError."""
    try:
        found: Any = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise WordsError(
            "json",
            f"this message is not valid JSON: {error}",
            where=f"character {error.pos}",
            expected='an object such as {"type":"subscribe","id":"a","streams":["x"]}',
            name=None,
        ) from None
    try:
        return _READ.validate_python(found)
    except ValidationError as error:
        raise _problem(found, error) from None


def _problem(found: Any, error: ValidationError) -> WordsError:
    first = error.errors()[0]
    # pydantic names the kind of message first, which does not occur in the message.
    at = [str(part) for part in first["loc"]]
    where = ".".join(at[1:] if len(at) > 1 else at) or "type"
    name = found.get("id") if isinstance(found, dict) else None
    expected = expectation(dict(first))
    return WordsError(
        "invalid",
        f"{where}: {expected}",
        where=where if isinstance(found, dict) else "message",
        expected=expected,
        name=name[:ID_CHARS_MAX] if isinstance(name, str) else None,
    )
