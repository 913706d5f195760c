"""`edgewake map push`, `back` and `show`: the maps that all bridges use, with their versions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from edgewake.cloud.commands.common.api_client import OpsApi, api_options, fail
from edgewake.cloud.commands.common.output import print_items, tell

COLUMNS: Final = ("version", "in_use", "bytes", "description", "changed_at", "changed_by")
FILE: Final = click.Path(path_type=Path, dir_okay=False, exists=True)
_made_of = click.option(
    "--made-of",
    type=click.IntRange(min=0),
    help="Refuse it where another version than this one is in use by now; 0: where there is any.",
)
_description = click.option("--description", default="", help="What is new, for `map show`.")


@click.command("push")
@click.argument("file", type=FILE, required=False)
@click.option("--none", "is_none", is_flag=True, help="In place of FILE: take the maps away.")
@_description
@_made_of
@api_options
def push(
    make_api: Callable[[], OpsApi],
    file: Path | None,
    is_none: bool,
    description: str,
    made_of: int | None,
) -> None:
    """Give all bridges the maps of FILE, as the next version; within a second they are in use.

    Bridges whose configuration has `pushed = true` in [maps] take them. FILE is checked before it
    is kept: what no bridge could use is refused, with line and key.
    """
    if (file is None) != is_none:
        raise click.UsageError("expected FILE, or --none")
    text = "" if file is None else _text(file)
    _put(make_api(), text, description, made_of, about="" if file is None else f"{file}: ")


@click.command("back")
@click.argument("version", type=click.IntRange(min=1))
@_made_of
@api_options
def back(make_api: Callable[[], OpsApi], version: int, made_of: int | None) -> None:
    """Use the maps of VERSION again, as the next version."""
    api = make_api()
    old = api.ask("GET", f"/v1/maps/{version}").json()
    _put(api, str(old["text"]), f"as version {version}", made_of)


@click.command("show")
@click.argument("version", type=click.IntRange(min=1), required=False)
@api_options
def show(make_api: Callable[[], OpsApi], version: int | None) -> None:
    """Show the versions that are kept; with VERSION, the text of that one, as `push` takes it."""
    api = make_api()
    if version is None:
        print_items(api.ask("GET", "/v1/maps").json()["items"], COLUMNS, as_json=api.as_json)
        return
    click.echo(api.ask("GET", f"/v1/maps/{version}").json()["text"], nl=False)


def _put(api: OpsApi, text: str, description: str, made_of: int | None, *, about: str = "") -> None:
    params = {} if made_of is None else {"version": made_of}
    body = {"text": text, "description": description}
    made: dict[str, Any] = api.ask("PUT", "/v1/maps", params=params, body=body, about=about).json()
    tell(f"version {made['version']}, {made['bytes']} bytes", err=True)


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{file}: {error}")
