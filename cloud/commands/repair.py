"""`edgewake query repair`, `backfill` and `repairs`: windows computed again from the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from edgewake.cloud.commands.common import completion
from edgewake.cloud.commands.common.api_client import OpsApi, fail, shows
from edgewake.cloud.commands.common.arguments import query_name
from edgewake.cloud.commands.common.output import cell, print_item, print_items, tell
from edgewake.cloud.commands.common.times import TIME, time_ms

WAIT_S: Final = 600
LOOK_EVERY_S: Final = 0.5
COLUMNS: Final = (
    "id",
    "state",
    "kind",
    "asked_by",
    "begin",
    "end",
    "added",
    "changed",
    "withdrawn",
    "unchanged",
    "unknown",
    "detail",
)
_wait = click.option(
    "--wait",
    "wait_s",
    type=click.IntRange(0, 86_400),
    default=WAIT_S,
    show_default=True,
    help="Seconds to wait for it.",
)


@click.command()
@click.argument("name", callback=query_name, shell_complete=completion.queries)
@click.option(
    "--from",
    "begin",
    callback=time_ms,
    required=True,
    help=f"The first window is the one that this is in: {TIME}.",
)
@click.option(
    "--to",
    "end",
    callback=time_ms,
    help="Windows that begin here or later are left out; default: those that are open now.",
)
@_wait
@shows
def repair(api: OpsApi, name: str, begin: int, end: int | None, wait_s: int) -> None:
    """Compute closed windows of a query again from the log, to include readings that came too late.

    Rows that differ are emitted again with a higher revision; the same range asked again changes
    nothing.
    """
    ask(api, name, {"kind": "repair", "begin": begin, "end": end}, wait_s)


@click.command()
@click.argument("name", callback=query_name, shell_complete=completion.queries)
@click.option(
    "--from",
    "begin",
    callback=time_ms,
    required=True,
    help=f"The first window is the one that this is in: {TIME}.",
)
@_wait
@shows
def backfill(api: OpsApi, name: str, begin: int, wait_s: int) -> None:
    """Compute a query's windows of before it was registered from the log."""
    ask(api, name, {"kind": "backfill", "begin": begin}, wait_s)


@click.command()
@click.argument("name", callback=query_name, shell_complete=completion.queries)
@shows
def repairs(api: OpsApi, name: str) -> None:
    """List the repairs of a query: who asked for them, and what they changed."""
    print_items(list(api.items(f"/v1/queries/{name}/repairs")), COLUMNS, as_json=api.as_json)


def progress_of(row: Mapping[str, Any]) -> str:
    """Where a repair is, in a sentence for people."""
    done_to, detail = row.get("done_to"), row.get("detail") or ""
    if row["state"] == "waiting":
        return (
            "waiting: "
            f"{detail or 'the analysis begins with the next of its looks, or after another repair'}"
        )
    done = (
        f"windows that begin before {cell('done_to', done_to)} are done" if done_to else "computing"
    )
    rows = ", ".join(
        f"{row[what]} {what}"
        for what in ("added", "changed", "withdrawn", "unchanged")
        if row.get(what)
    )
    return done + (f": {rows}" if rows else "")


def ask(api: OpsApi, name: str, wanted: dict[str, Any], wait_s: int) -> None:
    """Request a repair, wait for its end and show it.

    Ends the command where it was refused or takes longer.
    """
    import time

    found = api.ask("POST", f"/v1/queries/{name}/repairs", body=wanted).json()
    deadline = time.monotonic() + wait_s
    said = ""
    while found["state"] in ("waiting", "running") and time.monotonic() < deadline:
        if (progress := progress_of(found)) != said:
            tell(f"{name}: {progress}", err=True)
            said = progress
        time.sleep(LOOK_EVERY_S)
        found = next(
            (one for one in api.items(f"/v1/queries/{name}/repairs") if one["id"] == found["id"]),
            found,
        )
    print_item(found, as_json=api.as_json)
    if found["state"] == "refused":
        fail(f"{name}: {found['detail']}")
    if found["state"] != "done":
        fail(
            f"{name}: {found['state']}: {found['detail'] or 'not done yet'}; `edgewake query "
            f"repairs {name}` shows how far it is"
        )
