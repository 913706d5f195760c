"""`edgewake agent`: run the agent, ask how it is, check its configuration, look into its log."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from edgewake.edge.config import AgentConfig

_CONFIG = click.option("--config", "config_file", type=click.Path(path_type=Path, dir_okay=False), help="TOML file of the agent.")


@click.group(invoke_without_command=True)
@_CONFIG
@click.option("--verbose", is_flag=True, help="Log details, too.")
@click.pass_context
def agent(context: click.Context, config_file: Path | None, verbose: bool) -> None:
    """Run the agent of this device: measure, keep, send until acknowledged."""
    context.obj = config_file
    if context.invoked_subcommand is not None:
        return
    from edgewake.edge.life import live
    from edgewake.protocol.errors import ConfigError, LocalError
    from edgewake.protocol.log import set_up

    set_up(verbose=verbose)
    try:
        live(_file(config_file))
    except ConfigError as error:
        _fail(error, 2)
    except LocalError as error:
        _fail(error, 1)
    except ExceptionGroup:
        sys.exit(1)  # the task that died has said so in the log


@agent.command()
@_CONFIG
@click.pass_obj
@click.option("--json/--table", "as_json", default=False, help="One JSON object, for programs; default: a table.")
def status(of_group: Path | None, config_file: Path | None, as_json: bool) -> None:
    """How the agent is: connection, backlog, losses. Works on a stopped one, too."""
    from edgewake.edge import status as status_file
    from edgewake.protocol.clock import SystemClock
    from edgewake.protocol.errors import ConfigError, LocalError

    try:
        found = status_file.read(_load(config_file or of_group).data_dir, now_ms=SystemClock().now_ms())
    except ConfigError as error:
        _fail(error, 2)
    except LocalError as error:
        _fail(error, 1)
    else:
        import orjson

        click.echo(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode() if as_json else status_file.table(found))


@agent.command()
@_CONFIG
@click.pass_obj
def check(of_group: Path | None, config_file: Path | None) -> None:
    """Check the configuration and say what it means; exit 2 where it cannot be used."""
    from edgewake.protocol.errors import ConfigError

    try:
        config = _load(config_file or of_group)
    except ConfigError as error:
        _fail(error, 2)
    else:
        sources = ", ".join(f"{source.type} → {source.stream} ({source.mode})" for source in config.source) or "none"
        chains = ", ".join(f"{chain.stream} → {chain.into}" for chain in config.chain) or "none"
        actions = ", ".join(f"{action.stream} → {action.type} {action.name}" for action in config.action) or "none"
        click.echo(
            f"good: device {config.device}, broker {config.mqtt.host}:{config.mqtt.port}, log in {config.data_dir}, "
            f"sources: {sources}, chains: {chains}, actions: {actions}"
        )


@agent.command("log")
@_CONFIG
@click.pass_obj
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000), help="Frames to show.")
def show_log(of_group: Path | None, config_file: Path | None, limit: int) -> None:
    """Frames and batches that wait in the log, oldest first, one JSON object a line. Reads only."""
    from edgewake.edge.log.view import rows
    from edgewake.protocol.errors import ConfigError, LocalError

    try:
        for row in rows(_load(config_file or of_group).data_dir, limit):
            click.echo(row)
    except ConfigError as error:
        _fail(error, 2)
    except LocalError as error:
        _fail(error, 1)


def _file(config_file: Path | None) -> Path:
    from edgewake.protocol.errors import ConfigError

    if config_file is None:
        raise ConfigError("--config FILE is missing: an agent needs at least `device` and `data_dir`")
    return config_file


def _load(config_file: Path | None) -> AgentConfig:
    from edgewake.edge.config import AgentConfig
    from edgewake.protocol.config import load

    return load(AgentConfig, _file(config_file))


def _fail(error: Exception, code: int) -> NoReturn:
    click.echo(f"edgewake agent: {error}", err=True)
    sys.exit(code)
