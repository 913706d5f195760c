"""`edgewake query`: registered queries from a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from edgewake.cloud.commands.common import completion
from edgewake.cloud.commands.common.api_client import OpsApi, api_options, fail, shows
from edgewake.cloud.commands.common.arguments import query_name
from edgewake.cloud.commands.common.output import print_item, print_items, print_json, tell
from edgewake.cloud.commands.common.times import TIME, time_ms
from edgewake.cloud.commands.rebuild import rebuild
from edgewake.cloud.commands.repair import ask, backfill, repair, repairs

WAIT_S: Final = 60
"""Seconds that `add` waits for a query to run."""
LOOK_EVERY_S: Final = 0.1
PREVIEW_S: Final = 75
"""Seconds that `preview` waits: longer than the operations API does."""
COLUMNS: Final = ("name", "state", "streams", "lag", "detail")
WIDE_COLUMNS: Final = (
    "name",
    "state",
    "streams",
    "lag",
    "readings_per_s",
    "late",
    "kept",
    "shed",
    "isolated",
    "watermark",
    "detail",
)


@click.group()
@api_options
@click.pass_context
def query(context: click.Context, make_api: Callable[[], OpsApi]) -> None:
    """Add, check, replace, look at and remove continuous queries."""
    context.obj = make_api


for _command in (repair, backfill, rebuild, repairs):
    query.add_command(_command)


@query.command("list")
@shows
@click.option("--wide", is_flag=True, help="All columns.")
def list_queries(api: OpsApi, wide: bool) -> None:
    """Show all queries."""
    print_items(
        list(api.items("/v1/queries")), WIDE_COLUMNS if wide else COLUMNS, as_json=api.as_json
    )


@query.command()
@click.argument("name", callback=query_name, shell_complete=completion.queries)
@shows
def show(api: OpsApi, name: str) -> None:
    """Show one query and its text."""
    print_item(api.ask("GET", f"/v1/queries/{name}").json(), as_json=api.as_json)


@query.command()
@click.argument("name", callback=query_name, shell_complete=completion.queries)
@shows
def pause(api: OpsApi, name: str) -> None:
    """Stop computing a query.

    Rows of its open windows will say that they lack readings.
    """
    print_item(api.ask("POST", f"/v1/queries/{name}/pause").json(), as_json=api.as_json)


@query.command()
@click.argument("name", callback=query_name, shell_complete=completion.queries)
@shows
def resume(api: OpsApi, name: str) -> None:
    """Go on computing a query."""
    print_item(api.ask("POST", f"/v1/queries/{name}/resume").json(), as_json=api.as_json)


@query.command()
@click.argument("name", callback=query_name, shell_complete=completion.queries)
@shows
def remove(api: OpsApi, name: str) -> None:
    """Remove a query; its results stay until they are too old."""
    api.ask("DELETE", f"/v1/queries/{name}")
    tell(f"{name}: removed", err=True)


@query.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option(
    "--wait",
    "wait_s",
    type=click.IntRange(0, 3600),
    default=WAIT_S,
    show_default=True,
    help="Seconds to wait until it runs.",
)
@click.option(
    "--backfill-from",
    "backfill_from",
    callback=time_ms,
    help=f"Compute older windows from the log, too, from {TIME}.",
)
@shows
def add(api: OpsApi, file: Path, wait_s: int, backfill_from: int | None) -> None:
    """Register the query in FILE and wait until it runs."""
    response = api.ask("POST", "/v1/queries", body={"text": _text_of(file)}, about=f"{file}: ")
    found = response.json()
    tell(
        f"{found['name']}: "
        f"{'registered' if response.status_code == 201 else 'was registered already'}",
        err=True,
    )
    _tell_whether_it_runs(api, found, wait_s)
    if backfill_from is not None:
        ask(api, found["name"], {"kind": "backfill", "begin": backfill_from}, wait_s)


@query.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option(
    "--wait",
    "wait_s",
    type=click.IntRange(0, 3600),
    default=WAIT_S,
    show_default=True,
    help="Seconds to wait until it runs.",
)
@shows
def replace(api: OpsApi, file: Path, wait_s: int) -> None:
    """Replace the registered query of the same name with FILE, and wait until it runs."""
    text = _text_of(file)
    name = _name_in(text) or fail(f"{file}: expected a line `-- name: my_query`")
    found = api.ask("PUT", f"/v1/queries/{name}", body={"text": text}, about=f"{file}: ").json()
    tell(f"{name}: replaced", err=True)
    _tell_whether_it_runs(api, found, wait_s)


def _tell_whether_it_runs(api: OpsApi, found: dict[str, Any], wait_s: int) -> None:
    found = _wait(api, found, wait_s)
    if _waits(found) or (found["state"] == "starting" and not wait_s):
        tell(
            f"{found['name']}: {found['detail'] or 'starting'}; `edgewake query show "
            f"{found['name']}` tells when it runs",
            err=True,
        )
    elif found["state"] != "running":
        fail(
            f"{found['name']}: "
            f"{found['state']}{': ' + found['detail'] if found['detail'] else ''}. "
            f"{_advice(found)}"
        )
    else:
        where = next(iter(found["events_urls"]), found["events_path"])
        tell(f"{found['name']}: running. Its results: curl -N '{where}'", err=True)
    if api.as_json:
        print_json({name: value for name, value in found.items() if name != "text"})


@query.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@shows
def check(api: OpsApi, file: Path) -> None:
    """Check the query in FILE against the existing streams; register nothing.

    Shows its class and plan.
    """
    found = api.ask(
        "POST", "/v1/queries:check", body={"text": _text_of(file)}, about=f"{file}: "
    ).json()
    if api.as_json:
        print_json(found)
    else:
        tell(
            f"{file}: good; query {found['name']} reads {', '.join(found['streams'])} and gives "
            f"{', '.join(found['columns'])}"
        )
        tell(f"{found['execution']}: {found['why']}")
        for number, step in enumerate(found["plan"], 1):
            tell(f"{number}. {step}")


@query.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option(
    "--minutes", type=click.IntRange(1, 1440), default=10, show_default=True, help="How far back."
)
@click.option(
    "--rows",
    "rows_max",
    type=click.IntRange(1, 1000),
    default=100,
    show_default=True,
    help="Results to show at most.",
)
@shows
def preview(api: OpsApi, file: Path, minutes: int, rows_max: int) -> None:
    """Show what the query in FILE gives over recent readings of its stream; register nothing."""
    body = {"text": _text_of(file), "minutes": minutes, "rows": rows_max}
    found = api.ask(
        "POST", "/v1/queries:preview", body=body, about=f"{file}: ", timeout_s=PREVIEW_S
    ).json()
    for row in found["rows"]:
        print_json(row)
    if found["is_cut"]:
        tell(f"{file}: there are more than these {len(found['rows'])} results", err=True)


def _name_in(text: str) -> str | None:
    """What the header says; whether all is right the API says."""
    match = re.search(r"^--\s*name\s*:\s*([a-z][a-z0-9_]*)\s*$", text, re.MULTILINE)
    return None if match is None else match[1]


def _text_of(file: Path) -> str:
    try:
        text = file.read_text("utf-8")
    except UnicodeDecodeError:
        fail(f"{file}: expected a query file in UTF-8")
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    if not text.strip():
        fail(f"{file}: the file is empty; expected a query file (docs/queries.md)")
    return text


def _wait(api: OpsApi, found: dict[str, Any], wait_s: int) -> dict[str, Any]:
    import time

    from rich.console import Console

    deadline = time.monotonic() + wait_s
    with Console(stderr=True).status(f"{found['name']}: {found['state']} …") as status:
        while (
            found["state"] in ("starting", "retrying")
            and time.monotonic() < deadline
            and not _waits(found)
        ):
            time.sleep(LOOK_EVERY_S)
            found = api.ask("GET", f"/v1/queries/{found['name']}").json()
            status.update(f"{found['name']}: {found['state']} …")
    return found


def _waits(found: Mapping[str, Any]) -> bool:
    """For a stream that is not there yet, which may be for days?"""
    return bool(found["state"] == "starting" and found["detail"])


def _advice(found: Mapping[str, Any]) -> str:
    name = found["name"]
    if found["state"] == "starting":
        return (
            f"Is the analysis running? `edgewake query show {name}` tells when it is; `edgewake "
            f"query remove {name}` gives it up."
        )
    if found["state"] == "retrying":
        return (
            f"It is registered and runs by itself when that is over; `edgewake query show {name}` "
            "tells."
        )
    if found["state"] == "paused":
        return f"`edgewake query resume {name}` lets it go on."
    return (
        "Mend the file and `edgewake query replace` it, or give it up with `edgewake query "
        f"remove {name}`."
    )
