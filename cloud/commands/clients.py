"""`edgewake clients`: who reads at the access servers now, and ending one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

import click

from edgewake.cloud.commands.common.api_client import OpsApi, api_options, shows
from edgewake.cloud.commands.common.output import print_items

COLUMNS: Final = (
    "id",
    "protocol",
    "principal",
    "address",
    "streams",
    "state",
    "behind_records",
    "behind_s",
    "policy",
    "opened_at",
)
STATES: Final = ("opening", "waiting", "behind", "live", "ending")


@click.group()
@api_options
@click.pass_context
def clients(context: click.Context, make_api: Callable[[], OpsApi]) -> None:
    """Look at who reads now, and end one. Those that sleep: `edgewake leases`."""
    context.obj = make_api


@clients.command("list")
@click.option("--stream", help="Only those that read this stream or query.")
@click.option("--principal", help="Only those of this principal.")
@click.option("--state", type=click.Choice(STATES), help="Only those.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=100,
    show_default=True,
    help="Show at most N.",
)
@shows
def list_clients(
    api: OpsApi, stream: str | None, principal: str | None, state: str | None, limit: int
) -> None:
    """Show who reads, and how far each is behind; as of a few seconds ago."""
    asked = {"stream": stream, "principal": principal, "state": state}
    found = api.items("/v1/clients", {name: value for name, value in asked.items() if value})
    print_items(list(islice(found, limit)), COLUMNS, as_json=api.as_json)


@clients.command("end")
@click.argument("client")
@click.option("--reason", default="", help="What the client is told.")
@click.option("--lease", "is_lease", is_flag=True, help="CLIENT is the id of a lease.")
@shows
def end_client(api: OpsApi, client: str, reason: str, is_lease: bool) -> None:
    """End CLIENT, which may come again: take its key back, too, to keep it away."""
    if is_lease and reason:
        raise click.UsageError("--reason: a sleeping client receives no reason; leave it out")
    what = "leases" if is_lease else "clients"
    api.ask("DELETE", f"/v1/{what}/{client}", params={"reason": reason} if reason else {})
    click.echo(f"{client}: ended", err=True)
