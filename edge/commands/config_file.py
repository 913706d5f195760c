"""What the agent's commands have in common: where the configuration is, and how an error ends.

Imports light things only.
"""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, ParamSpec

import click

if TYPE_CHECKING:
    from edgewake.edge.config import AgentConfig

P = ParamSpec("P")

CONFIG = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="TOML file of the agent.",
)


def given(config_file: Path | None) -> Path:
    """The file. Raises ConfigError where none was named."""
    from edgewake.protocol.errors import ConfigError

    if config_file is None:
        raise ConfigError(
            "--config FILE is missing: an agent needs at least `device` and `data_dir`"
        )
    return config_file


def load_config(config_file: Path | None) -> AgentConfig:
    """The configuration. Raises ConfigError."""
    from edgewake.edge.config import AgentConfig
    from edgewake.protocol.config import load

    return load(AgentConfig, given(config_file))


def data_dir_of(config_file: Path | None) -> Path:
    """Where its log is. Raises ConfigError."""
    return load_config(config_file).data_dir


def exits(function: Callable[P, None]) -> Callable[P, None]:
    """End the command at an error of ours with one sentence.

    Exit code 2 for an unusable configuration, 1 for the rest.
    """

    @functools.wraps(function)
    def wrapped(*arguments: P.args, **named: P.kwargs) -> None:
        from edgewake.protocol.errors import ConfigError, EdgewakeError

        _say_what_a_terminal_can_show()
        try:
            function(*arguments, **named)
        except BrokenPipeError:
            raise  # who read us has enough, e.g. `head`: click ends quietly
        except ConfigError as error:
            fail(error, 2)
        except (EdgewakeError, OSError) as error:
            fail(error, 1)

    return wrapped


def _say_what_a_terminal_can_show() -> None:
    """Write characters that the output's encoding lacks as escapes, instead of failing."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def fail(error: Exception, code: int) -> NoReturn:
    """Say it and end."""
    click.echo(f"edgewake agent: {error}", err=True)
    sys.exit(code)
