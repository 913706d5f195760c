"""`edgewake query rebuild`: states of queries removed and computed again from the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from edgewake.cloud.commands.common import completion
from edgewake.cloud.commands.common.api_client import OpsApi, fail, shows
from edgewake.cloud.commands.common.arguments import query_name
from edgewake.cloud.commands.common.output import print_items
from edgewake.cloud.commands.repair import LOOK_EVERY_S, WAIT_S

COLUMNS: Final = (
    "query",
    "state",
    "kept_from",
    "done_to",
    "end",
    "added",
    "changed",
    "withdrawn",
    "unchanged",
    "unknown",
    "detail",
)
AT_ONCE: Final = 10
"""Rebuilds that are asked for before the first of them is waited for; half of what may be open."""
OPEN: Final = ("waiting", "running")


@click.command()
@click.argument(
    "names",
    nargs=-1,
    shell_complete=completion.queries,
    metavar="[NAME]…",
    callback=lambda context, argument, names: _checked(context, argument, names),
)
@click.option("--stream", shell_complete=completion.streams, help="All queries of a stream.")
@click.option("--all", "is_all", is_flag=True, help="All queries.")
@click.option(
    "--lossy",
    is_flag=True,
    help="Also where open windows have readings that retention deleted: they lose them.",
)
@click.option(
    "--wait",
    "wait_s",
    type=click.IntRange(0, 86_400),
    default=WAIT_S,
    show_default=True,
    help="Seconds to wait for the end.",
)
@shows
def rebuild(
    api: OpsApi, names: tuple[str, ...], stream: str | None, is_all: bool, lossy: bool, wait_s: int
) -> None:
    """Remove the states of queries and compute them again from the log, as far as it is retained.

    Only rows that differ are emitted again. A query's lane stands still meanwhile; other lanes go
    on.
    """
    if bool(names) + bool(stream) + is_all != 1:
        raise click.UsageError("name queries, or --stream STREAM, or --all")
    wanted = list(names) or [
        one["name"]
        for one in api.items("/v1/queries")
        if (is_all or one["stream"] == stream) and _runs(one)
    ]
    if not wanted:
        fail(f"no query of stream {stream!r} runs" if stream else "no query runs")
    found: list[dict[str, Any]] = []
    for at in range(0, len(wanted), AT_ONCE):
        asked = [
            api.ask("POST", f"/v1/queries/{name}/rebuild", body={"lossy": lossy}).json()
            for name in wanted[at : at + AT_ONCE]
        ]
        found += _waited_for(api, asked, wait_s)
    print_items(found, COLUMNS, as_json=api.as_json)
    for one in found:
        if one["state"] != "done":
            why = one["detail"] or "it goes on"
            fail(
                f"{one['query']}: {one['state']}: {why}; `edgewake query repairs {one['query']}` "
                "shows how far it is"
            )


def _checked(
    context: click.Context, argument: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    return tuple(query_name(context, argument, name) for name in names)


def _runs(query: dict[str, Any]) -> bool:
    return query["state"] in ("running", "starting", "retrying")


def _waited_for(api: OpsApi, asked: Sequence[dict[str, Any]], wait_s: int) -> list[dict[str, Any]]:
    import time

    from rich.console import Console

    found = {one["id"]: one for one in asked}
    deadline = time.monotonic() + wait_s
    with Console(stderr=True).status("") as status:
        while time.monotonic() < deadline and (
            left := [one for one in found.values() if one["state"] in OPEN]
        ):
            status.update(
                f"{left[0]['query']}: {left[0]['detail'] or left[0]['state']} … {len(left)} of "
                f"{len(asked)} left"
            )
            time.sleep(LOOK_EVERY_S)
            for one in left:
                page = api.items(f"/v1/queries/{one['query']}/repairs")
                found[one["id"]] = next((row for row in page if row["id"] == one["id"]), one)
    return list(found.values())
