"""`edgewake push`."""

from __future__ import annotations

from pathlib import Path

import click

from edgewake.cloud.loading import without_collections
from edgewake.cloud.part_options import part_options


@click.command()
@part_options("TOML file.")
def push(config_file: Path, verbose: bool) -> None:
    """Watch for clients that sleep and wake them by webhook."""
    with without_collections():
        from edgewake.cloud.push.run import main

    main(config_file, verbose=verbose)
