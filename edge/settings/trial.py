"""The shell around `settings`: restarts the agent with new ones, watches it, and answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from edgewake.edge.settings.settings import SettingsFile, SettingsState, Version
from edgewake.edge.settings.settings_check import fault_in
from edgewake.protocol.clock import Clock
from edgewake.protocol.downlink.downlink import Answer, AnswerState, DownKind

if TYPE_CHECKING:
    from edgewake.protocol.downlink.down_message import Settings

log = logging.getLogger("edgewake.downlink")

NOTE_AGAIN_S: Final = 5.0
"""Seconds until the file is tried again where the disk did not take it."""


class Trial:
    """The settings of one life."""

    def __init__(
        self,
        file: SettingsFile,
        clock: Clock,
        *,
        health_s: float,
        is_healthy: Callable[[], bool],
        restart: Callable[[], None],
        say: Callable[[Answer], None],
    ) -> None:
        """`restart` ends this life and begins another. Raises ConfigError for an unreadable file.

        `say` sends a reading, so that there is one for the cloud to acknowledge.
        """
        self._file = file
        self._clock = clock
        self._health_s = health_s
        self._is_healthy = is_healthy
        self._restart = restart
        self._say = say
        self._ended = asyncio.Event()
        self._gave_up = False
        self._state: SettingsState = file.started or file.read()

    @property
    def version(self) -> int:
        """The version of the settings in use; 0: the device's own configuration alone."""
        return self._state.version

    def check(self, settings: Settings) -> Answer | None:
        """An answer where they need not, or may not, be tried."""
        state = self._state
        if state.good is not None and state.good.id == settings.id:
            return self._answer(settings, AnswerState.DONE)
        if state.failed is not None and state.failed.id == settings.id:
            return self._answer(settings, AnswerState.ROLLED_BACK, state.why)
        if state.trial is not None and state.trial.id == settings.id:
            return None
        if settings.version <= state.latest:
            return self._answer(
                settings,
                AnswerState.REFUSED,
                f"version {settings.version}: expected one after {state.latest}",
            )
        return None

    async def apply(self, settings: Settings) -> Answer | None:
        """Refuse settings or restart with them; in the life that tries them, answer the outcome.

        None: this life ends. Settings other than those on trial (whose message the log may have
        lost) have their turn when that is over.
        """
        if self._state.trial is not None:
            await self._ended.wait()
            if self._gave_up:
                return None
            answer = self.check(settings)
            if answer is not None:
                return answer
        fault = await fault_in(self._file.own, settings.text, f"version {settings.version}")
        if fault is not None:
            return self._answer(settings, AnswerState.REFUSED, fault)
        try:
            await self._write(
                self._state.pushed(Version(settings.id, settings.version, settings.text))
            )
        except OSError as error:  # a full disk must not end the agent, again and again
            return self._answer(
                settings, AnswerState.FAILED, f"version {settings.version} cannot be kept: {error}"
            )
        log.info(
            "settings of version %d are tried",
            settings.version,
            extra={"event": "settings.tried", "version": settings.version},
        )
        self._restart()
        return None

    async def watch(self) -> None:
        """In a life that tries settings: until they are good, or given up."""
        trial = self._state.trial
        if trial is None:
            return
        self._say(
            Answer(
                id=trial.id, kind=DownKind.SETTINGS, state=AnswerState.TRYING, version=trial.version
            )
        )
        if await self._proves_good():
            await self._note(self._state.proven())
            log.info(
                "settings of version %d are good",
                trial.version,
                extra={"event": "settings.good", "version": trial.version},
            )
        else:
            await self.give_up(f"the cloud acknowledged nothing within {self._health_s:g} s")
        self._ended.set()

    async def give_up(self, why: str) -> None:
        """Back to the last good ones."""
        log.error(
            "settings of version %d are given up: %s",
            self.version,
            why,
            extra={"event": "settings.given_up", "why": why},
        )
        self._gave_up = True
        await self._note(self._state.given_up(why))
        self._restart()

    async def _note(self, state: SettingsState) -> None:
        """Write the state as soon as the disk takes it.

        An agent that ended here would find the same disk after its next start.
        """
        is_said = False
        while True:
            try:
                return await self._write(state)
            except OSError as error:
                if not is_said:
                    log.error(
                        "what became of settings cannot be kept yet: %s",
                        error,
                        extra={"event": "settings.not_kept"},
                    )
                is_said = True
            await self._clock.sleep(NOTE_AGAIN_S)

    async def _write(self, state: SettingsState) -> None:
        await asyncio.to_thread(self._file.write, state)
        self._state = state

    async def _proves_good(self) -> bool:
        until_s = self._clock.monotonic_s() + self._health_s
        while not self._is_healthy():
            if self._clock.monotonic_s() >= until_s:
                return False
            await self._clock.sleep(min(0.2, self._health_s / 10))
        return True

    def _answer(self, settings: Settings, state: AnswerState, detail: str = "") -> Answer:
        return Answer(
            id=settings.id,
            kind=DownKind.SETTINGS,
            state=state,
            detail=detail,
            version=self._state.version,
        )
