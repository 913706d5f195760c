"""What a device asks the cloud for, and what it is told: request and reply, hours apart if need be.

A request is a reading of the stream `device_requests`, so it is kept on the device until the cloud
has it, and comes once:

    {"t":…,"id":"r-17","name":"route","body":"to the depot","expires_s":86400}

`id` is chosen by the asking program, another one for each request of a device; the same id again is
the same request. `name` says what is asked, `body` is text of any kind (JSON usually), `expires_s`
says how long a reply is worth something, from when a bridge received it.

The reply is a message `down/reply` of the downlink, and on the device one reading of the stream
`ew_replies`, which never leaves it:

    {"t":…,"id":"r-17","state":"answered","body":"12.4 km","detail":""}

Each request gets one reply, also where nobody serves it or nobody answers in time: the cloud then
says so itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from edgewake.protocol.downlink.downlink import (
    BODY_CHARS_MAX,
    EXPIRES_S_MAX,
    REQUEST_FIELDS,
    REQUEST_ID_PATTERN,
    REQUEST_WRONG,
)
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.names import FIELD_PATTERN
from edgewake.protocol.plain import Plain, key
from edgewake.protocol.plain_json import Misshapen, value_of

EXPIRES_S: Final = 86_400
"""How long a reply is useful where the request does not say, s."""
OPEN_MAX: Final = 100
"""The most requests of one device that wait for their reply; one more is refused."""
ENDED_MAX: Final = 100
"""Requests of one device that have their reply and are remembered; the oldest go. Asked again under
the same id, such a one is new."""


class Request(Plain):
    """One request, as a device's reading says it."""

    id: str = key(pattern=REQUEST_ID_PATTERN)
    name: str = key(pattern=f"^{FIELD_PATTERN.pattern}$")
    body: str = key(default="", max_length=BODY_CHARS_MAX)
    expires_s: int = key(default=EXPIRES_S, ge=1, le=EXPIRES_S_MAX)


def check_request(fields: Mapping[str, Any]) -> None:
    """May a device send this? Raises Rejected.

    The cloud would refuse the whole frame, with the good requests in it.
    """
    for name in fields:
        if name not in REQUEST_FIELDS or name == REQUEST_WRONG:
            raise Rejected(
                RejectReason.SHAPE,
                f"{name[:80]!r} is not a field of a request: expected id, name, body (a text), "
                "expires_s",
            )
    try:
        request_of(fields)
    except Misshapen as error:
        raise Rejected(RejectReason.SHAPE, f"no request: {error}") from error


def request_of(fields: Mapping[str, Any]) -> Request:
    """A request from a reading's fields, others beside them. Raises Misshapen."""
    found = {
        name: fields[name]
        for name in REQUEST_FIELDS
        if name != REQUEST_WRONG and fields.get(name) is not None
    }
    expires_s = found.get("expires_s")
    if isinstance(expires_s, float) and expires_s.is_integer():  # fields have numbers, whole or not
        found["expires_s"] = int(expires_s)
    return value_of(Request, found)
