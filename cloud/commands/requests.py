"""Requests of devices in a terminal: `edgewake requests`, `edgewake reply`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import click

from edgewake.cloud.commands.common import completion
from edgewake.cloud.commands.common.api_client import OpsApi, api_options
from edgewake.cloud.commands.common.output import print_item, print_items

COLUMNS: Final = ("id", "device", "state", "name", "body", "received_at", "expires_at", "reply")


@click.command()
@api_options
@click.option(
    "--state", type=click.Choice(["open", "answered", "refused", "expired"]), help="Only those."
)
@click.option("--name", help="Only what asks for this.")
def requests(make_api: Callable[[], OpsApi], state: str | None, name: str | None) -> None:
    """List what devices ask for."""
    api = make_api()
    wanted = {key: value for key, value in (("state", state), ("name", name)) if value is not None}
    print_items(list(api.items("/v1/requests", wanted)), COLUMNS, as_json=api.as_json)


@click.command()
@api_options
@click.argument("device", shell_complete=completion.devices)
@click.argument("request_id", metavar="ID")
@click.argument("body", default="")
@click.option("--refuse", metavar="WHY", help="Refuse it instead.")
def reply(
    make_api: Callable[[], OpsApi], device: str, request_id: str, body: str, refuse: str | None
) -> None:
    """Answer the request ID of DEVICE with BODY."""
    api = make_api()
    said = (
        {"body": body} if refuse is None else {"body": body, "state": "refused", "detail": refuse}
    )
    print_item(
        api.ask("POST", f"/v1/devices/{device}/requests/{request_id}/reply", body=said).json(),
        as_json=api.as_json,
    )
