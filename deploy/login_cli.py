"""`edgewake login`: a fresh link into the operations API."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--ops",
    "url",
    envvar="EDGEWAKE_OPS_URL",
    help="Address of the operations API; default: a running `edgewake up`'s.",
)
@click.option(
    "--key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of its keys; default: the same.",
)
def login(url: str | None, key_file: Path | None) -> None:
    """Print a link that logs a browser in at the operations API, once, within ten minutes."""
    from edgewake.deploy import login_link
    from edgewake.protocol import installation
    from edgewake.protocol.errors import ConfigError

    running = installation.find()
    url, file = url or running.ops, key_file or running.ops_key_file
    if not url or not file:
        raise ConfigError(
            "no running `edgewake up` found: set --ops and --key-file, or "
            f"{installation.DATA_VARIABLE} to its data folder"
        )
    click.echo(login_link.make(url.rstrip("/"), Path(file)))
