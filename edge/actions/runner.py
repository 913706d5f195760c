"""Actions at work: each reads its alerts from the log, by a cursor of its own, one after another.

What it does wrong harms nobody else.

It begins with the next alert to come. What waits for a slow action waits in the log, within
`log.consumer_bytes`, and most of it becomes too old there. That an alert was begun is durable
before anything happens (`progress`), so it works without the cloud, and no kill makes it act twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, assert_never

from edgewake.edge.actions import progress
from edgewake.edge.actions.action import Action
from edgewake.edge.actions.alert import Alert
from edgewake.edge.actions.config import AnyAction
from edgewake.edge.actions.progress import Outcome
from edgewake.edge.error_text import error_text
from edgewake.edge.log.consumer import Consumer, LogRenewedError
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.forgetting import ACTIONS as PREFIX
from edgewake.edge.log.forgetting import forget_others
from edgewake.edge.log.keeping.work import Failpoint, no_failpoint
from edgewake.edge.log.tables.consumers import Missed
from edgewake.edge.things.streams import streams_of
from edgewake.protocol.backoff import Backoff
from edgewake.protocol.clock import Clock
from edgewake.protocol.topics import stream_and_thing

if TYPE_CHECKING:
    from edgewake.edge.processors.expression import Evaluate

log = logging.getLogger("edgewake.action")

READ_ALERTS: Final = 100
"""Alerts that are read at once."""
RETRY_MIN_S: Final = 0.5
"""First wait before the way to a server or broker is tried again; doubled and jittered."""
RETRY_MAX_S: Final = 15.0
"""Bound of it: an alert that is worth a minute gets a few tries."""


class ActionRunner:
    """One action and its consumer."""

    def __init__(
        self,
        config: AnyAction,
        device: str,
        events: EventLog,
        clock: Clock,
        rng: random.Random,
        failpoint: Failpoint = no_failpoint,
        *,
        behind_s: float = 0.0,
        of_things: bool = False,
    ) -> None:
        """`behind_s`: how old an alert may be at birth, because a window had to end first.

        `of_things`: each thing behind this device has alerts of its own.
        """
        self._of_things = of_things
        self._config = config
        self._device = device
        self._expire_s = config.expire_s + behind_s
        self._action = _built(config, device)
        self._when = None if config.when is None else _condition(config.when)
        self._events = events
        self._clock = clock
        self._backoff = Backoff(rng, first_s=RETRY_MIN_S, max_s=RETRY_MAX_S)
        self._failpoint = failpoint
        self._progress = progress.Progress()
        self._next_s = 0.0
        self._error: str | None = None
        self._consumer: Consumer | None = None

    async def open(self) -> Consumer:
        """Register as a consumer; it gets all alerts from now on.

        Raises LogClosedError, sqlite3.Error.
        """
        self._consumer = await self._events.consumer(
            PREFIX + self._config.name,
            streams_of(self._config.stream, of_things=self._of_things),
            at_end=True,
        )
        return self._consumer

    async def run(self) -> None:
        """Until cancelled or until the log is closed. Raises LogClosedError, sqlite3.Error."""
        consumer = self._consumer or await self.open()
        while True:
            try:
                await self._follow(consumer)
            except LogRenewedError:
                self._say(
                    "log_renewed", "the event log was damaged: it goes on with what could be saved"
                )

    async def _follow(self, consumer: Consumer) -> None:
        kept = progress.decode(consumer.state)
        self._progress = progress.resumed(kept)
        if kept.begun is not None:
            self._say("unknown", "the agent ended while it was done: it is not done again")
            await consumer.commit({}, state=self._progress.encode(), wait=False)
        while True:
            chunk = await consumer.read(READ_ALERTS)
            for item in chunk.items:
                if isinstance(item, Missed):
                    self._progress = self._progress.ended(Outcome.MISSED, item.count)
                    continue
                stream, thing = stream_and_thing(item.stream)
                for place, reading in enumerate(item.readings, start=item.first):
                    if self._when is None or self._when(reading) is True:
                        alert = Alert(thing or self._device, stream, place, reading)
                        await self._take(consumer, item.stream, alert)
            await consumer.commit(chunk.cursor, state=self._progress.encode(), wait=False)
            await asyncio.sleep(0)  # all of the above may have found everything at hand

    async def _take(self, consumer: Consumer, log_stream: str, alert: Alert) -> None:
        """One alert of a stream of the log, to its end."""
        async with contextlib.AsyncExitStack() as left:
            act = await self._way(alert, left)
            if act is None:
                self._end(
                    Outcome.EXPIRED, f"an alert is {alert.age_s(self._clock.now_ms()):.0f} s old"
                )
                return
            self._progress = self._progress.begin(alert.position)
            await consumer.commit({log_stream: alert.position}, state=self._progress.encode())
            self._failpoint("begun")
            error = await self._act(act, alert)
            self._failpoint("acted")
        self._next_s = self._clock.monotonic_s() + self._config.pause_s
        self._end(Outcome.DONE if error is None else Outcome.FAILED, error)
        await consumer.commit({}, state=self._progress.encode(), wait=False)

    async def _way(
        self, alert: Alert, left: contextlib.AsyncExitStack
    ) -> Callable[[Alert], Awaitable[None]] | None:
        """Open the way to the action's target, retrying.

        None where the alert becomes too old first.
        """
        age_s = self._aging(alert)
        while True:
            wait_s = self._next_s - self._clock.monotonic_s()
            if wait_s > 0 and age_s() <= self._expire_s:
                await self._clock.sleep(wait_s)
            if age_s() > self._expire_s:
                return None
            began_s = self._clock.monotonic_s()
            try:
                async with asyncio.timeout(self._config.timeout_s):
                    act = await left.enter_async_context(self._action.prepared())
            except Exception as error:  # whatever an action raises is its own affair
                self._error = error_text(error)
                self._say("waiting", f"the way there: {self._error}")
                self._next_s = self._clock.monotonic_s() + self._backoff.next_s()
            else:
                self._backoff.lasted(self._clock.monotonic_s() - began_s)
                return act

    def _aging(self, alert: Alert) -> Callable[[], float]:
        """A function for the alert's age, by the clock that says more.

        A clock that is set back meanwhile makes no alert younger.
        """
        seen_s, seen_age_s = self._clock.monotonic_s(), alert.age_s(self._clock.now_ms())
        return lambda: max(
            alert.age_s(self._clock.now_ms()), seen_age_s + self._clock.monotonic_s() - seen_s
        )

    async def _act(self, act: Callable[[Alert], Awaitable[None]], alert: Alert) -> str | None:
        """Act once; returns what went wrong, or None."""
        try:
            async with asyncio.timeout(self._config.timeout_s):
                await act(alert)
        except TimeoutError:
            return f"not done within {self._config.timeout_s:g} s"
        except Exception as error:  # whatever an action raises is its own affair
            return error_text(error)
        return None

    def _end(self, outcome: Outcome, error: str | None) -> None:
        self._progress = self._progress.ended(outcome)
        self._error = error
        if error is not None:
            self._say(outcome.value, error)

    def _say(self, event: str, text: str) -> None:
        log.warning(
            "action %s: %s",
            self._config.name,
            text,
            extra={"event": f"action.{event}", "action": self._config.name},
        )

    def counts(self) -> dict[str, Any]:
        """For the status: exact, as they are committed with the cursor."""
        counts = {outcome.value: self._progress.counts.get(outcome.value, 0) for outcome in Outcome}
        return {
            "type": self._config.type,
            "stream": self._config.stream,
            **counts,
            "error": self._error,
        }


class Actions:
    """All actions of an agent."""

    def __init__(
        self,
        configs: Sequence[AnyAction],
        device: str,
        events: EventLog,
        clock: Clock,
        rng: random.Random,
        *,
        behind_s: Mapping[str, float] = MappingProxyType({}),
        of_things: Container[str] = frozenset(),
    ) -> None:
        """`behind_s`: of streams whose alerts wait for the end of a window.

        `of_things`: streams of which each thing behind this device has one of its own.
        """
        self._events = events
        self.runners = {
            config.name: ActionRunner(
                config,
                device,
                events,
                clock,
                rng,
                behind_s=behind_s.get(config.stream, 0.0),
                of_things=config.stream in of_things,
            )
            for config in configs
        }

    async def forget_others(self) -> None:
        """Forget the state of actions that were removed from the configuration.

        Raises LogClosedError, sqlite3.Error.
        """
        await forget_others(self._events, PREFIX, [PREFIX + name for name in self.runners])

    async def open(self) -> None:
        """Before the first alert comes. Raises as `forget_others`."""
        for runner in self.runners.values():
            await runner.open()

    def counts(self) -> dict[str, Any]:
        """For the status, by name."""
        return {name: runner.counts() for name, runner in self.runners.items()}


def _condition(text: str) -> Evaluate:
    from edgewake.edge.processors.expression import compiled

    return compiled(text)


def _built(config: AnyAction, device: str) -> Action:
    """Each kind is imported where it is used: a small device pays for what it has."""
    match config.type:
        case "command":
            from edgewake.edge.actions.command import CommandAction

            return CommandAction(config)
        case "webhook":
            from edgewake.edge.actions.webhook import WebhookAction

            return WebhookAction(config)
        case "mqtt":
            from edgewake.edge.actions.mqtt_message import MqttAction

            return MqttAction(config, device)
        case unknown:
            assert_never(unknown)
