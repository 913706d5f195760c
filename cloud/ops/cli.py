"""`edgewake ops`."""

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
def ops(config_file: Path, verbose: bool) -> None:
    """Serve the operations API."""
    with without_collections():
        from edgewake.cloud.ops.run import main

    main(config_file, verbose=verbose)
