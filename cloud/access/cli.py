"""`edgewake access`: serve streams and results over HTTP."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command()
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="TOML file; without it the defaults serve.")
@click.option("--host", help="Overrides the file's.")
@click.option("--port", type=click.IntRange(0, 65535), help="Overrides the file's.")
@click.option("--verbose", is_flag=True, help="Log everything.")
def access(config_file: Path | None, host: str | None, port: int | None, verbose: bool) -> None:
    """Serve streams and results over HTTP: SSE with cursors, filters, and the page."""
    from edgewake.protocol import config, log
    from edgewake.protocol.errors import ConfigError

    log.set_up(verbose=verbose)
    from edgewake.cloud.access.config import AccessConfig
    from edgewake.cloud.access.run import run

    try:
        settings = AccessConfig() if config_file is None else config.load(AccessConfig, config_file)
        overrides = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
        run(settings.model_copy(update=overrides))
    except ConfigError as error:
        click.echo(f"edgewake access: {error}", err=True)
        sys.exit(2)
