"""The shell around `settings`: takes new ones, restarts the agent with them, watches them, and answers what became of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from edgewake.edge.downlink.settings import SettingsFile, SettingsState, Version
from edgewake.edge.downlink.settings_check import fault_in
from edgewake.protocol.clock import Clock
from edgewake.protocol.downlink import Answer, AnswerState, DownKind

if TYPE_CHECKING:
    from edgewake.protocol.down_message import Settings

log = logging.getLogger("edgewake.downlink")


class Trial:
    """One life's settings."""

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
        """`restart` ends this life and begins another; `say` sends a reading, so that there is one for the cloud to acknowledge.

        Raises ConfigError where the file cannot be read.
        """
        self._file = file
        self._clock = clock
        self._health_s = health_s
        self._is_healthy = is_healthy
        self._restart = restart
        self._say = say
        self._ended = asyncio.Event()
        self._state: SettingsState = file.read()

    @property
    def version(self) -> int:
        """Of the settings in use; 0: the device's own configuration alone."""
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
            return self._answer(settings, AnswerState.REFUSED, f"version {settings.version}: expected one after {state.latest}")
        return None

    async def apply(self, settings: Settings) -> Answer | None:
        """Refuse them or restart with them, or, in the life that tries them, say what became of them. None: this life ends.

        Raises OSError.
        """
        if self._state.trial is None:
            fault = await fault_in(self._file.own, settings.text, f"version {settings.version}")
            if fault is not None:
                return self._answer(settings, AnswerState.REFUSED, fault)
            log.info("settings of version %d are tried", settings.version, extra={"event": "settings.tried", "version": settings.version})
            await self._write(self._state.pushed(Version(settings.id, settings.version, settings.text)))
            self._restart()
            return None
        await self._ended.wait()
        return self.check(settings) if self._state.good is not None and self._state.good.id == settings.id else None

    async def watch(self) -> None:
        """In a life that tries settings: until they are good, or given up. Raises OSError."""
        trial = self._state.trial
        if trial is None:
            return
        self._say(Answer(id=trial.id, kind=DownKind.SETTINGS, state=AnswerState.TRYING, version=trial.version))
        if await self._proves_good():
            await self._write(self._state.proven())
            log.info("settings of version %d are good", trial.version, extra={"event": "settings.good", "version": trial.version})
        else:
            await self.give_up(f"the cloud acknowledged nothing within {self._health_s:g} s")
        self._ended.set()

    async def give_up(self, why: str) -> None:
        """Back to the last good ones. Raises OSError."""
        log.error("settings of version %d are given up: %s", self.version, why, extra={"event": "settings.given_up", "why": why})
        await self._write(self._state.given_up(why))
        self._restart()

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
        return Answer(id=settings.id, kind=DownKind.SETTINGS, state=state, detail=detail, version=self._state.version)
