"""The lives of an agent's process: each with one configuration, and in two stages.

The first checks the configuration. Then the process replaces itself (execv) by the second
(`edgewake.edge.run`), which gets the checked values and runs the agent: whatever only checking and
the command line need, pydantic and click before all, is gone by then, and with it a third of the
memory. Another life begins, with the first stage, where the cloud set another configuration, and
where that did not prove good. All have one pid: what watches the process notices nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from edgewake.edge.config import AgentConfig
from edgewake.edge.memory import ONE_HEAP

if TYPE_CHECKING:
    from edgewake.edge.settings.settings import SettingsState


@dataclass(frozen=True, slots=True)
class Life:
    """What the first stage gives the second."""

    config: AgentConfig
    own: Mapping[str, Any] | None
    """The device's own values, to which the cloud's are added; None: the cloud may set none."""
    command: tuple[str, ...]
    """What began this life, and begins the next one."""
    version: str
    """The agent's version."""
    verbose: bool
    settings: SettingsState | None = None
    """With what of the cloud's it begins."""


def begin(config_file: Path, *, verbose: bool) -> NoReturn:
    """Check the configuration and become the running agent. Raises ConfigError, OSError."""
    _become(_checked(config_file, verbose=verbose))


def begin_again(life: Life) -> NoReturn:
    """Become the first stage of the next life."""
    os.execv(sys.executable, life.command)  # noqa: S606  (the command that started us)


def _checked(config_file: Path, *, verbose: bool) -> Life:
    from edgewake.edge.settings.settings import SettingsFile
    from edgewake.protocol import config as configs

    values = configs.read(config_file)
    config = configs.parse(AgentConfig, values, str(config_file))
    command = tuple(sys.orig_argv)
    if not config.downlink.settings:
        return Life(config, None, command, _version(), verbose)
    file = SettingsFile(values, config.data_dir)
    config = file.start()
    return Life(config, values, command, _version(), verbose, file.started)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("edgewake")
    except PackageNotFoundError:
        return ""


def _become(life: Life) -> NoReturn:
    import pickle

    with open(os.memfd_create("edgewake-life", 0), "r+b", closefd=False) as file:
        pickle.dump(life, file)
        file.seek(0)
        sys.stdout.flush()
        # -P: modules are not searched for in the working directory.
        command = [
            sys.executable,
            "-P",
            "-m",
            "edgewake.edge.run",
            str(file.fileno()),
        ]
        os.execve(sys.executable, command, os.environ | ONE_HEAP)  # noqa: S606
    raise AssertionError


def received(fd: int) -> Life:
    """In the second stage: what the first one gave."""
    import pickle

    with os.fdopen(fd, "rb") as file:
        life = pickle.load(file)  # noqa: S301 - our own process wrote it
    assert isinstance(life, Life)
    return life
