"""The states of one client's stream, as a table. Pure.

starting ──▶ behind ◀──▶ live
    └───────────┴─────────┴──▶ ending ──▶ gone

A stream leaves the first three when it ends by itself, is ended, or loses its connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class State(StrEnum):
    """The states of a client's stream."""

    STARTING = "starting"
    """Its first words are not written yet."""
    BEHIND = "behind"
    """It reads what is older than the newest."""
    LIVE = "live"
    """It has everything and waits for new records."""
    ENDING = "ending"
    """What is written is written; then the answer ends."""
    GONE = "gone"
    """All of it is cleaned up."""


class Change(StrEnum):
    """What happens to a stream."""

    STARTED = "started"
    CAUGHT_UP = "caught_up"
    FELL_BEHIND = "fell_behind"
    END = "end"
    LEFT = "left"


_S, _C = State, Change
TABLE: Final[Mapping[tuple[State, Change], State]] = MappingProxyType(
    {
        (_S.STARTING, _C.STARTED): _S.BEHIND,
        (_S.STARTING, _C.END): _S.ENDING,
        (_S.STARTING, _C.LEFT): _S.GONE,
        (_S.BEHIND, _C.CAUGHT_UP): _S.LIVE,
        (_S.BEHIND, _C.FELL_BEHIND): _S.BEHIND,
        (_S.BEHIND, _C.END): _S.ENDING,
        (_S.BEHIND, _C.LEFT): _S.GONE,
        (_S.LIVE, _C.CAUGHT_UP): _S.LIVE,
        (_S.LIVE, _C.FELL_BEHIND): _S.BEHIND,
        (_S.LIVE, _C.END): _S.ENDING,
        (_S.LIVE, _C.LEFT): _S.GONE,
        (_S.ENDING, _C.END): _S.ENDING,
        (_S.ENDING, _C.LEFT): _S.GONE,
        (_S.GONE, _C.END): _S.GONE,
        (_S.GONE, _C.LEFT): _S.GONE,
    }
)


class Impossible(Exception):
    """A change that cannot happen in a state: our own mistake."""


def after(state: State, change: Change) -> State:
    """The state after a change; raises Impossible."""
    try:
        return TABLE[state, change]
    except KeyError:
        raise Impossible(f"{change} cannot happen to a stream that is {state}") from None
