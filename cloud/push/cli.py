"""`edgewake push`."""

from __future__ import annotations

from pathlib import Path

import click

from edgewake.cloud.loading import without_collections


@click.command()
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="TOML file.",
)
@click.option("--verbose", is_flag=True, help="Log details, too.")
def push(config_file: Path, verbose: bool) -> None:
    """Watch for clients that sleep and wake them by webhook."""
    with without_collections():
        from edgewake.cloud.push.run import main

    main(config_file, verbose=verbose)
