"""The readers of the log beside the uplink: actions, absence rules, sketches, chains, requests.

Only what the configuration has is loaded: a small device pays for what it uses. Consumers that it
no longer has are forgotten, for the log would keep readings for them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from edgewake.edge.config import AgentConfig
from edgewake.edge.log import forgetting
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.forgetting import forget_others
from edgewake.protocol.clock import Clock
from edgewake.protocol.downlink.downlink import REQUESTS

if TYPE_CHECKING:
    from edgewake.edge.actions.runner import Actions
    from edgewake.edge.downlink.requests import BookKeeper
    from edgewake.edge.processors.processing import Processing
    from edgewake.edge.processors.watching import Watching
    from edgewake.edge.sketches.sketching import Sketching

Run = Callable[[], Coroutine[Any, Any, None]]


class Workers:
    """The workers of one agent."""

    def __init__(
        self, config: AgentConfig, events: EventLog, clock: Clock, rng: random.Random
    ) -> None:
        """Raises LocalError where a library is missing."""
        self._events = events
        self._actions: Actions | None = None
        self._watching: Watching | None = None
        self._sketching: Sketching | None = None
        self._processing: Processing | None = None
        self._requests: BookKeeper | None = None
        things = config.streams_of_things
        if config.chain:
            from edgewake.edge.processors.processing import Processing

            self._processing = Processing(config.chain, events, things)
        if config.sketch:
            from edgewake.edge.sketches.sketching import Sketching

            self._sketching = Sketching(config.sketch, events, clock, rng, things)
        if config.absence:
            from edgewake.edge.processors.watching import Watching

            self._watching = Watching(config.absence, events, clock, things)
        if config.action:
            from edgewake.edge.actions.runner import Actions

            self._actions = Actions(
                config.action,
                config.device,
                events,
                clock,
                rng,
                behind_s=config.behind_s,
                of_things=things,
            )
        if config.downlink.requests:
            from edgewake.edge.downlink.requests import BookKeeper

            self._requests = BookKeeper(events, clock, of_things=REQUESTS in things)

    async def open(self) -> dict[str, Run]:
        """Register all readers before the first reading comes, and return what to run, by name.

        The order is from what acts to what makes. Raises LogClosedError, sqlite3.Error.
        """
        await self._forget_others()
        for group in (self._actions, self._sketching, self._processing, self._requests):
            if group is not None:
                await group.open()
        work: dict[str, Run] = {}
        if self._actions is not None:
            work |= {f"action {name}": runner.run for name, runner in self._actions.runners.items()}
        if self._sketching is not None:
            work |= {
                f"sketch {stream}": sketcher.run
                for stream, sketcher in self._sketching.sketchers.items()
            }
        if self._watching is not None:
            work |= {
                f"absence {name}": watcher.run for name, watcher in self._watching.watchers.items()
            }
        if self._processing is not None:
            work |= {f"chain {into}": chain.run for into, chain in self._processing.chains.items()}
        if self._requests is not None:
            work["requests"] = self._requests.run
        return work

    async def _forget_others(self) -> None:
        groups = {
            forgetting.ACTIONS: self._actions,
            forgetting.ABSENCES: self._watching,
            forgetting.SKETCHES: self._sketching,
            forgetting.CHAINS: self._processing,
        }
        for prefix, group in groups.items():
            if group is None:
                await forget_others(self._events, prefix, ())
            else:
                await group.forget_others()
        if self._requests is None:
            await forget_others(self._events, forgetting.REQUESTS, ())

    def counts(self) -> dict[str, dict[str, Any]]:
        """For the status, by kind."""
        groups = {
            "chains": self._processing,
            "absences": self._watching,
            "actions": self._actions,
            "sketches": self._sketching,
            "requests": self._requests,
        }
        return {
            kind: {} if group is None else dict(group.counts()) for kind, group in groups.items()
        }
