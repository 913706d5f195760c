"""What clients ask of shared consumers: a group of them shares streams, each event is given to one.

How a group is stored is `edgewake.protocol.leases.group_record`.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from edgewake.protocol.leases.chosen import Chosen

TAKE_MAX: Final = 100
"""The bounds of the events of one take."""
WAIT_S_MAX: Final = 15.0
"""The longest wait of a take for its first event, s; proxies give a request more."""
HOLD_S: Final = (1, 3600)
"""The shortest and longest time, s, that a taken event is reserved for its client."""
RELEASE_S_MAX: Final = 3600
TOKENS_MAX: Final = 1000
"""Tokens of one request: as many as a group may hold."""

Token = Annotated[str, Field(max_length=80)]


class GroupRequest(Chosen):
    """Body of PUT /v1/groups/{name}."""

    after: str | None = None
    """The cursor to begin behind, of whatever protocol."""
    start: Annotated[str | int | None, Field(alias="from")] = None
    """Where to begin without `after`: latest (default), earliest, or a time."""


class Take(BaseModel):
    """Body of POST /v1/groups/{name}/take."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max: Annotated[int, Field(ge=1, le=TAKE_MAX)] = 10
    wait_s: Annotated[float, Field(ge=0, le=WAIT_S_MAX)] = 0
    """Seconds to wait for the first event."""
    hold_s: Annotated[float, Field(ge=HOLD_S[0], le=HOLD_S[1])] = 30
    """Seconds after which an event that is not acknowledged is given to another one."""
    ack: Annotated[tuple[Token, ...], Field(max_length=TOKENS_MAX)] = ()
    """Tokens of events that are done, as in Ack: one request does both."""


class Ack(BaseModel):
    """Body of POST /v1/groups/{name}/ack."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    done: Annotated[tuple[Token, ...], Field(max_length=TOKENS_MAX)] = ()
    """Tokens of events that are done: no client gets them again."""
    release: Annotated[tuple[Token, ...], Field(max_length=TOKENS_MAX)] = ()
    """Tokens of events to release to another client …"""
    after_s: Annotated[float, Field(ge=0, le=RELEASE_S_MAX)] = 0
    """… after this many seconds."""
