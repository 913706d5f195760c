"""The lives of an agent's process: each with one configuration. Another one begins where the cloud set another configuration, and where
that did not prove good.

The process replaces itself (execv), so nothing of the life before is left but its pid: what watches it notices nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
from pathlib import Path

from edgewake.edge.agent import Agent
from edgewake.edge.config import AgentConfig
from edgewake.edge.downlink.settings import SettingsFile
from edgewake.protocol import config as configs
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import LocalError
from edgewake.protocol.heartbeat import Heartbeat

log = logging.getLogger("edgewake.agent")


def live(config_file: Path) -> None:
    """Run until a signal says stop. Raises ConfigError, LocalError, and what made a task die."""
    values = configs.read(config_file)
    own = configs.parse(AgentConfig, values, str(config_file))
    if not own.downlink.settings:
        _one_life(own, None)
        return
    settings = SettingsFile(values, own.data_dir)
    if _with_settings(settings):
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606  (the command that started us)


def _with_settings(settings: SettingsFile) -> bool:
    """One life; is another one to begin? A trial that ends it by an error is given up."""
    try:
        return _one_life(settings.start(), settings)
    except (LocalError, ExceptionGroup) as error:
        state = settings.read()
        if state.trial is None:
            raise
        log.exception("settings of version %d are given up", state.version, extra={"event": "settings.given_up"})
        settings.write(state.given_up(f"the agent ended: {_first(error)}"))
        return True


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _one_life(config: AgentConfig, settings: SettingsFile | None) -> bool:
    heartbeat = Heartbeat(SystemClock())

    async def life() -> bool:
        agent = Agent(config, clock=SystemClock(), rng=random.SystemRandom(), settings=settings)
        agent.on_ready = heartbeat.ready
        await agent.run()
        return agent.wants_restart

    return asyncio.run(heartbeat.beside(life()))
