"""`edgewake agent requests`: what this device asked the cloud, and what it was told.

Reads the log only.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

import click

from edgewake.edge.commands.config_file import CONFIG, data_dir_of, exits

LOOK_EVERY_S: Final = 0.2
_WAITING, _UNKNOWN = 3, 4
"""Exit codes for one request."""


@click.command()
@CONFIG
@click.argument("request_id", metavar="[ID]", required=False)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, 86_400),
    default=0,
    help="Seconds to wait for the reply to ID.",
)
@click.option("--thing", default="", help="The thing behind this device that asked ID.")
@click.pass_obj
@exits
def requests(
    of_group: Path | None,
    config_file: Path | None,
    request_id: str | None,
    wait_s: float,
    thing: str,
) -> None:
    """What was asked, one JSON object a line; or one request.

    Exit 3 where it has no reply yet, 4 where nobody asked it.
    """
    import orjson

    from edgewake.edge.downlink.requests import kept_in, key_of
    from edgewake.protocol.clock import SystemClock

    directory, clock = data_dir_of(config_file or of_group), SystemClock()
    if request_id is None:
        for entry in kept_in(directory).at(clock.now_ms()).entries.values():
            click.echo(orjson.dumps(entry))
        return
    deadline_s = time.monotonic() + wait_s
    while True:
        book = kept_in(directory).at(clock.now_ms())
        found = book.entries.get(key_of(request_id, thing))
        if (found is not None and found.state != "waiting") or time.monotonic() >= deadline_s:
            break
        time.sleep(LOOK_EVERY_S)
    if found is None:
        click.echo(f"unknown request {request_id!r}", err=True)
        sys.exit(_UNKNOWN)
    click.echo(orjson.dumps(found))
    if found.state == "waiting":
        sys.exit(_WAITING)
