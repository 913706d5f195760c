"""`edgewake devices claim`, `claims`, `end-claim`: codes by which devices enrol themselves."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

import click

from edgewake.cloud.commands.common import completion
from edgewake.cloud.commands.common.api_client import OpsApi, shows
from edgewake.cloud.commands.common.output import print_items, print_json, tell

ID: Final = r"[0-9a-f]{12}"
COLUMNS: Final = ("id", "left", "prefix", "until")


@click.command("claim")
@click.option(
    "--count", type=click.IntRange(1, 10_000), default=1, show_default=True, help="For N devices."
)
@click.option(
    "--hours",
    type=click.FloatRange(0.01, 720),
    default=24.0,
    show_default=True,
    help="How long the code is good.",
)
@click.option("--prefix", default="", help="How the names of these devices must begin.")
@shows
def claim(api: OpsApi, count: int, hours: float, prefix: str) -> None:
    """Make a code by which devices enrol themselves (`edgewake-agent init --claim`).

    They get a password, or with --certificate a certificate.
    """
    made = api.ask(
        "POST", "/v1/claims", body={"count": count, "life_s": hours * 3600, "prefix": prefix}
    ).json()
    if api.as_json:
        print_json(made)
    else:
        click.echo("\n".join(_claim_lines(made, prefix)))


def _claim_lines(made: dict[str, Any], prefix: str) -> list[str]:
    """What a device needs, in lines that can be copied as they are."""
    until = datetime.fromtimestamp(made["until"] / 1000).astimezone()
    found = [
        made["code"],
        f"  for          {made['count']} devices, until {until:%Y-%m-%d %H:%M %Z}",
    ]
    proof = ""
    if made.get("fingerprint"):
        found.append(f"  fingerprint  {made['fingerprint']}")
        proof = f"--fingerprint {made['fingerprint']} "
    server = made.get("server") or "SERVER"
    return [
        *found,
        "  on the device",
        f"    edgewake-agent init --device {prefix}1 --claim {made['code']} {proof}"
        f"--server {server} --data-dir edgewake-data agent.toml",
    ]


def _claim_id(_context: click.Context, _argument: click.Parameter, value: str) -> str:
    if not re.fullmatch(ID, value):
        raise click.BadParameter(
            f"{value!r}: expected the 12 characters that `edgewake devices claims` shows, "
            "not the code itself"
        )
    return value


@click.command("claims")
@shows
def claims(api: OpsApi) -> None:
    """Show the codes that are good: for how many more devices, and until when."""
    print_items(api.ask("GET", "/v1/claims").json()["items"], COLUMNS, as_json=api.as_json)


@click.command("end-claim")
@click.argument("claim_id", metavar="ID", callback=_claim_id, shell_complete=completion.claims)
@shows
def end_claim(api: OpsApi, claim_id: str) -> None:
    """End a code. Devices that came in by it stay; `devices claims` shows each ID."""
    api.ask("DELETE", f"/v1/claims/{claim_id}")
    tell(f"{claim_id}: lets nobody in any more", err=True)
