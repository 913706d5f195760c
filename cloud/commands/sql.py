"""`edgewake sql`: one question over past and present, from a terminal."""

from __future__ import annotations

from collections.abc import Callable

import click

from edgewake.cloud.commands.common.api_client import OpsApi, api_options
from edgewake.cloud.commands.common.output import print_items, print_json


@click.command()
@click.argument("select")
@click.option(
    "--rows", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="Rows at most."
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 60),
    default=10,
    show_default=True,
    help="Seconds after which it is given up.",
)
@api_options
def sql(select: str, rows: int, seconds: float, make_api: Callable[[], OpsApi]) -> None:
    """Answer SELECT over streams, queries and summaries: past and present, each row once."""
    api = make_api()
    found = api.ask(
        "POST",
        "/v1/sql",
        body={"sql": select, "rows": rows, "seconds": seconds},
        timeout_s=seconds + 30,
    ).json()
    if api.as_json:
        return print_json(found)
    names = [column["name"] for column in found["columns"]]
    print_items([dict(zip(names, row, strict=True)) for row in found["rows"]], names, as_json=False)
    for text, count in (
        ("more rows: ask for them by --rows", found["is_cut"]),
        ("records of the present were left out", found["present"]["records_left"]),
        ("records were lost before the lake had them", found["past"]["lost_records"]),
    ):
        if count:
            click.echo(f"{'' if count is True else f'{count} '}{text}", err=True)
    return None
