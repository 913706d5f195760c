"""`edgewake login` and `edgewake open`: a fresh link into the operations API."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

_OPTIONS: Final = (
    click.option(
        "--key-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="File of its keys; default: the same.",
    ),
    click.option(
        "--ops",
        "url",
        envvar="EDGEWAKE_OPS_URL",
        help="Address of the operations API; default: a running `edgewake up`'s.",
    ),
)


def _with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in _OPTIONS:
        command = option(command)
    return command


@click.command()
@_with_options
def login(url: str | None, key_file: Path | None) -> None:
    """Print a link that logs a browser in at the operations API, once, within ten minutes."""
    click.echo(_link(url, key_file))


@click.command("open")
@_with_options
def open_pages(url: str | None, key_file: Path | None) -> None:
    """Open the operations pages in this machine's browser, logged in."""
    import webbrowser

    link = _link(url, key_file)
    if not webbrowser.open(link):
        click.echo(f"no browser opens here; within ten minutes, once: {link}")


def _link(url: str | None, key_file: Path | None) -> str:
    from edgewake.deploy import login_link
    from edgewake.protocol import installation
    from edgewake.protocol.errors import ConfigError

    running = installation.find()
    url, file = url or running.ops, key_file or running.ops_key_file
    if not url or not file:
        raise ConfigError(
            "no running `edgewake up` found: give --ops and --key-file, or set "
            f"{installation.DATA_VARIABLE} to its data folder"
        )
    return login_link.make(url.rstrip("/"), Path(file))
