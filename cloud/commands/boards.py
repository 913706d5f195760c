"""Boards in a terminal: `edgewake board`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from edgewake.cloud.commands.common import completion
from edgewake.cloud.commands.common.api_client import OpsApi, api_options, fail, shows
from edgewake.cloud.commands.common.arguments import query_name
from edgewake.cloud.commands.common.output import print_items, print_json, tell
from edgewake.cloud.commands.common.tables_file import check_name, content_of

COLUMNS: Final = ("name", "title", "cards", "version", "changed_at", "changed_by")
OWN: Final = ("title", "cards")
"""What of a board is a person's; the rest is made when it is kept."""

_board = click.argument("name", callback=query_name, shell_complete=completion.boards)


@click.group()
@api_options
@click.pass_context
def board(context: click.Context, make_api: Callable[[], OpsApi]) -> None:
    """Keep boards in files; they are made and looked at on the operations page."""
    context.obj = make_api


@board.command("list")
@shows
def list_boards(api: OpsApi) -> None:
    """Show all boards."""
    print_items(list(api.items("/v1/boards")), COLUMNS, as_json=api.as_json)


@board.command("show")
@_board
@shows
def show(api: OpsApi, name: str) -> None:
    """Show one board as JSON, as `apply` takes it."""
    found = api.ask("GET", f"/v1/boards/{name}").json()
    print_json({key: found[key] for key in ("name", *OWN)})


@board.command("apply")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@shows
def apply(api: OpsApi, file: Path) -> None:
    """Put the board in FILE (JSON, with its name) in the place of the one of that name."""
    found = content_of(file, is_json=True)
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        fail(f'{file}: expected an object with "name", "title" and "cards"')
    name = found.pop("name")
    check_name(file, "board", name)
    made = api.ask("PUT", f"/v1/boards/{name}", body=found, about=f"{file}: ").json()
    tell(f"{name}: version {made['version']}, {len(made['cards'])} cards", err=True)


@board.command("delete")
@_board
@shows
def delete(api: OpsApi, name: str) -> None:
    """Remove a board."""
    api.ask("DELETE", f"/v1/boards/{name}")
    tell(f"{name}: removed", err=True)
