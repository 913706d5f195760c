"""The second stage of a life (`edgewake.edge.life`): runs the agent.

Started by the first one alone, with the number of an open file.

What is imported here is what a device pays for as long as it runs.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from typing import TYPE_CHECKING

from edgewake.edge.agent import Agent
from edgewake.edge.life import Life, begin_again, received
from edgewake.edge.memory import forget_environment
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import ConfigError, EdgewakeError, LocalError
from edgewake.protocol.heartbeat import Heartbeat
from edgewake.protocol.log import set_up

if TYPE_CHECKING:
    from edgewake.edge.settings.settings import SettingsFile

log = logging.getLogger("edgewake.agent")


def main() -> None:
    """Run until a signal stops it.

    The exit code is 2 for an unusable configuration, 1 for other errors.
    """
    forget_environment()
    life = received(int(sys.argv[1]))
    set_up(verbose=life.verbose)
    try:
        wants_another = _live(life)
    except ExceptionGroup:
        sys.exit(1)  # the task that died has said so in the log
    except EdgewakeError as error:
        sys.stderr.write(f"edgewake agent: {error}\n")
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    if wants_another:
        begin_again(life)


def _live(life: Life) -> bool:
    """Is another life to begin? A trial that ends this one by an error is given up."""
    if life.own is None:
        return _run(life, None)
    # A device pays for it where the cloud may set some.
    from edgewake.edge.settings.settings import SettingsFile

    settings = SettingsFile(life.own, life.config.data_dir, life.settings)
    try:
        return _run(life, settings)
    except (LocalError, ExceptionGroup) as error:
        state = settings.read()
        if state.trial is None:
            raise
        log.exception(
            "settings of version %d are given up",
            state.version,
            extra={"event": "settings.given_up"},
        )
        settings.write(state.given_up(f"the agent ended: {_first(error)}"))
        return True


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _run(life: Life, settings: SettingsFile | None) -> bool:
    heartbeat = Heartbeat(SystemClock())

    async def running() -> bool:
        agent = Agent(
            life.config,
            clock=SystemClock(),
            rng=random.SystemRandom(),
            settings=settings,
            version=life.version,
        )
        agent.on_ready = heartbeat.ready
        await agent.run()
        return agent.wants_restart

    return asyncio.run(heartbeat.beside(running()))


if __name__ == "__main__":
    main()
