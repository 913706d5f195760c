"""Named sets and publications in a terminal: `edgewake set`, `edgewake publication`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from edgewake.cloud.commands.common import completion
from edgewake.cloud.commands.common.api_client import OpsApi, api_options, shows
from edgewake.cloud.commands.common.arguments import query_name
from edgewake.cloud.commands.common.output import print_items, print_json, tell
from edgewake.cloud.commands.common.tables_file import tables_of

SET_COLUMNS: Final = ("name", "members", "description", "version", "changed_at", "changed_by")
SET_OWN: Final = ("description", "members")
"""What of a set is a person's; the rest is made when it is kept."""
PUBLICATION_COLUMNS: Final = ("name", "streams", "where", "fields", "version", "changed_by")
PUBLICATION_OWN: Final = ("description", "streams", "where", "fields", "limits")

FILE: Final = click.Path(path_type=Path, dir_okay=False, exists=True)
_set = click.argument("name", callback=query_name, shell_complete=completion.sets)
_publication = click.argument("name", callback=query_name, shell_complete=completion.publications)
_members = click.argument("members", nargs=-1, required=True, metavar="DEVICE…")


@click.group("set")
@api_options
@click.pass_context
def set_group(context: click.Context, make_api: Callable[[], OpsApi]) -> None:
    """Keep sets of devices that filters use: device IN SET('north')."""
    context.obj = make_api


@set_group.command("list")
@shows
def list_sets(api: OpsApi) -> None:
    """Show all sets, with how many are in each."""
    print_items(list(api.items("/v1/sets")), SET_COLUMNS, as_json=api.as_json)


@set_group.command("show")
@_set
@shows
def show_set(api: OpsApi, name: str) -> None:
    """Show one set as JSON, as `apply` takes it."""
    found = api.ask("GET", f"/v1/sets/{name}").json()
    print_json({name: {key: found[key] for key in SET_OWN}})


@set_group.command("apply")
@click.argument("file", type=FILE)
@shows
def apply_sets(api: OpsApi, file: Path) -> None:
    """Create or replace the sets in FILE.

    FILE is TOML, with a table [NAME] for each set, or JSON.
    """
    for name, body in tables_of(file, "set", "with members in it").items():
        made = api.ask("PUT", f"/v1/sets/{name}", body=body, about=f"{file}: {name}: ").json()
        tell(f"{name}: version {made['version']}, {made['members']} members", err=True)


@set_group.command("add")
@_set
@_members
@shows
def add_to_set(api: OpsApi, name: str, members: tuple[str, ...]) -> None:
    """Add devices to a set."""
    _change(api, name, {"add": members})


@set_group.command("remove")
@_set
@_members
@shows
def remove_from_set(api: OpsApi, name: str, members: tuple[str, ...]) -> None:
    """Remove devices from a set."""
    _change(api, name, {"remove": members})


@set_group.command("delete")
@_set
@shows
def delete_set(api: OpsApi, name: str) -> None:
    """Remove a set; filters that use it pass nothing from then on."""
    api.ask("DELETE", f"/v1/sets/{name}")
    tell(f"{name}: removed", err=True)


def _change(api: OpsApi, name: str, body: dict[str, tuple[str, ...]]) -> None:
    made = api.ask("PATCH", f"/v1/sets/{name}", body=body).json()
    tell(f"{name}: version {made['version']}, {made['members']} members", err=True)


@click.group()
@api_options
@click.pass_context
def publication(context: click.Context, make_api: Callable[[], OpsApi]) -> None:
    """Give streams, a filter and fields a name that readers open."""
    context.obj = make_api


@publication.command("list")
@shows
def list_publications(api: OpsApi) -> None:
    """Show all publications."""
    print_items(list(api.items("/v1/publications")), PUBLICATION_COLUMNS, as_json=api.as_json)


@publication.command("show")
@_publication
@shows
def show_publication(api: OpsApi, name: str) -> None:
    """Show one publication as JSON, as `apply` takes it."""
    found = api.ask("GET", f"/v1/publications/{name}").json()
    print_json({name: {key: found[key] for key in PUBLICATION_OWN if found[key] is not None}})


@publication.command("apply")
@click.argument("file", type=FILE)
@shows
def apply_publications(api: OpsApi, file: Path) -> None:
    """Create or replace the publications in FILE.

    FILE is TOML, with a table [NAME] for each publication, or JSON.
    """
    for name, body in tables_of(file, "publication", "with streams in it").items():
        path, about = f"/v1/publications/{name}", f"{file}: {name}: "
        made = api.ask("PUT", path, body=body, about=about).json()
        tell(f"{name}: version {made['version']}", err=True)


@publication.command("delete")
@_publication
@shows
def delete_publication(api: OpsApi, name: str) -> None:
    """Remove a publication; who reads it is ended."""
    api.ask("DELETE", f"/v1/publications/{name}")
    tell(f"{name}: removed", err=True)
