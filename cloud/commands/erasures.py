"""What `edgewake streams delete` and `edgewake devices erase` have in common."""

from __future__ import annotations

import time
from typing import Final

import click

from edgewake.cloud.commands.common.api_client import OpsApi, fail
from edgewake.cloud.commands.common.output import print_item, tell

COLUMNS: Final = ("id", "what", "name", "step", "detail", "asked_at", "asked_by")
WAIT_S: Final = 600
LOOK_EVERY_S: Final = 0.5

yes = click.option("--yes", "is_sure", is_flag=True, help="Do not ask for the name once more.")
wait = click.option(
    "--wait",
    "wait_s",
    type=click.IntRange(0, 86_400),
    is_flag=False,
    flag_value=WAIT_S,
    default=0,
    metavar="[SECONDS]",
    help=f"Wait until it is gone; {WAIT_S} s where nothing is said.",
)


def confirm(name: str, *, is_sure: bool) -> None:
    """Have the name typed once more."""
    if is_sure:
        return
    if click.prompt(f"This cannot be undone. Type {name} to go on", err=True) != name:
        fail("the names differ: nothing was erased")


def ask(api: OpsApi, path: str, wait_s: int) -> None:
    """Ask for an erasure, follow it, and show it. Exit 1 where it is not done in time."""
    row = api.ask("DELETE", path).json()
    deadline, said = time.monotonic() + wait_s, ""
    while row["step"] != "done" and time.monotonic() < deadline:
        words = f"{row['step']} {row['detail']}".strip()
        if words != said:
            tell(words, err=True)
            said = words
        time.sleep(LOOK_EVERY_S)
        row = api.ask("GET", f"/v1/erasures/{row['id']}").json()
    print_item({**row, "cuts": len(row["cuts"])} if not api.as_json else row, as_json=api.as_json)
    if wait_s and row["step"] != "done":
        fail(f"not done after {wait_s} s, it goes on: {row['step']} {row['detail']}")
