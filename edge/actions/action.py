"""The port of an action: first the way to where it acts, then, once, the act.

    async with action.prepared() as act:      # may fail and be tried again: nothing has happened
        …                                     # durable now: this alert was begun
        await act(alert)                      # once

Both may raise any exception; the runner bounds their time and catches it. When `prepared` is left,
nothing of the action goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from edgewake.edge.actions.alert import Alert
from edgewake.protocol.errors import RemoteError

Act: TypeAlias = Callable[[Alert], Awaitable[None]]


class ActionFailed(RemoteError):
    """It was begun and did not succeed."""


class Action(Protocol):
    """What is done about an alert."""

    def prepared(self) -> AbstractAsyncContextManager[Act]:
        """Everything that can fail without an effect."""
