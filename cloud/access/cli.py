"""`edgewake access`: serve streams and results over HTTP."""

from __future__ import annotations

from pathlib import Path

import click

from edgewake.cloud.loading import without_collections


@click.command()
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="TOML file; without it the defaults serve.",
)
@click.option("--host", help="Overrides the file's.")
@click.option("--port", type=click.IntRange(0, 65535), help="Overrides the file's.")
@click.option("--verbose", is_flag=True, help="Log details, too.")
def access(config_file: Path | None, host: str | None, port: int | None, verbose: bool) -> None:
    """Serve streams and results over HTTP: SSE with cursors, filters, and the page."""
    with without_collections():
        from edgewake.cloud.access.run import main

    main(config_file, host=host, port=port, verbose=verbose)
