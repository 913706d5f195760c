"""`edgewake ops`."""

from __future__ import annotations

from pathlib import Path

import click

from edgewake.cloud.loading import without_collections
from edgewake.cloud.part_options import part_options


@click.command()
@part_options("TOML file.")
def ops(config_file: Path, verbose: bool) -> None:
    """Serve the operations API."""
    with without_collections():
        from edgewake.cloud.ops.run import main

    main(config_file, verbose=verbose)
