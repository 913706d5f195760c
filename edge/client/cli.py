"""`edgewake tail`: follow streams or queries in a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from edgewake.edge.client import completion

if TYPE_CHECKING:
    from edgewake.edge.client.asked import Published
    from edgewake.edge.client.credentials import Credentials
    from edgewake.edge.client.follow import OnGap
    from edgewake.protocol.leases.lease import Subscription


FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
DEFAULT_SERVER = "http://127.0.0.1:8700"


CREDENTIALS: Final = (
    click.option(
        "--token-file",
        type=FILE,
        help="A file with a token for `Authorization: Bearer`, read again for each request. Or in "
        "EDGEWAKE_TOKEN.",
    ),
    click.option(
        "--header",
        "headers",
        multiple=True,
        metavar="NAME:VALUE",
        help="A header to send; repeat it for more.",
    ),
    click.option("--ca-file", type=FILE, help="Certificates to trust beside the system's, PEM."),
    click.option("--cert-file", type=FILE, help="Your own certificate, PEM."),
    click.option("--key-file", type=FILE, help="Its key, where it is not in the same file."),
)


def with_credentials(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options for what it shows to servers."""
    for option in reversed(CREDENTIALS):
        command = option(command)
    return command


@click.command()
@click.argument("streams", nargs=-1, metavar="[STREAM…]", shell_complete=completion.streams)
@click.option("--publication", help="In the place of streams: what an operator put together.")
@click.option(
    "--server",
    "servers",
    multiple=True,
    help="Address of an access server; several are tried in turn. Default: those of a running "
    "`edgewake up`, or port 8700.",
)
@click.option("--where", help='SQL condition on the fields, e.g. "speed_kmh > 50".')
@click.option("--select", help='SQL columns, e.g. "device, speed_kmh / 3.6 AS speed_ms".')
@click.option(
    "--devices-file",
    type=FILE,
    help="A file with up to 10,000 devices, one a line: these alone.",
)
@click.option("--sample", type=float, help="A share of all devices, e.g. 0.1.")
@click.option(
    "--conflate",
    "conflate_ms",
    type=click.IntRange(min=20),
    help="Show only the latest of each device, or group, once in this time, ms.",
)
@click.option("--max-rate", type=float, help="Events a second at most.")
@click.option("--per", help="For --sample and --conflate: fields that tell what is the same thing.")
@click.option(
    "--slow",
    type=click.Choice(["wait", "conflate", "skip", "end"]),
    help="What the server does when this reads too slowly.",
)
@click.option(
    "--from",
    "start",
    default="latest",
    show_default=True,
    help="earliest, latest, an ISO 8601 time, a time ago such as -15m, or ms since 1970.",
)
@click.option(
    "--on-gap",
    type=click.Choice(["earliest", "latest", "stop"]),
    help="How to go on where records were lost.",
)
@click.option(
    "--cursor-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Save the cursor here and go on from it next time.",
)
@click.option(
    "--json/--table",
    "as_json",
    default=None,
    help="Default: a table on a terminal, JSON lines when piped.",
)
@click.option("--count", type=click.IntRange(min=1), help="End after N events.")
@with_credentials
def tail(
    streams: tuple[str, ...],
    servers: tuple[str, ...],
    publication: str | None,
    where: str | None,
    select: str | None,
    devices_file: Path | None,
    sample: float | None,
    conflate_ms: int | None,
    max_rate: float | None,
    per: str | None,
    slow: str | None,
    start: str,
    on_gap: OnGap | None,
    cursor_file: Path | None,
    as_json: bool | None,
    count: int | None,
    token_file: Path | None,
    headers: tuple[str, ...],
    ca_file: Path | None,
    cert_file: Path | None,
    key_file: Path | None,
) -> None:
    """Follow STREAM (a stream or a query): a live table on a terminal, JSON lines when piped.

    Several are merged. Reconnects and resumes by itself. Gaps, warnings and reconnects are shown on
    standard error.
    """
    from edgewake.edge.client.asked import Options
    from edgewake.edge.client.follow import Follower
    from edgewake.edge.client.tail import Tail, run
    from edgewake.protocol import installation

    servers = servers or installation.find().access or (DEFAULT_SERVER,)
    subscription = subscription_of(streams, publication, where, select)
    try:
        devices = None if devices_file is None else devices_file.read_text("utf-8").split()
        fields = per.split(",") if per else ()
        options = Options(devices, sample, conflate_ms, max_rate, fields, slow)
    except ValueError as error:  # too many, or not text
        raise click.UsageError(f"--devices-file: {error}") from error
    credentials = credentials_of(token_file, headers, ca_file, cert_file, key_file)
    try:
        Follower(servers, subscription)
    except ValueError as error:
        raise click.UsageError(f"--server: {error}") from error
    as_json = not sys.stdout.isatty() if as_json is None else as_json
    sys.exit(
        run(
            Tail(
                servers,
                subscription,
                start,
                cursor_file,
                count,
                on_gap,
                as_json,
                credentials,
                options,
            )
        )
    )


def subscription_of(
    streams: tuple[str, ...], publication: str | None, where: str | None, select: str | None
) -> Subscription | Published:
    """What is read, of streams or of a publication. Raises UsageError."""
    from pydantic import ValidationError

    from edgewake.edge.client.asked import Published
    from edgewake.protocol.leases.lease import Subscription

    if bool(streams) == (publication is not None):
        raise click.UsageError("expected STREAM… or --publication")
    try:
        if publication is not None:
            return Published(publication, where, select)
        return Subscription(streams=streams, where=where, select=select)
    except ValidationError as error:
        raise click.UsageError(f"STREAM: {error.errors()[0]['msg']}") from error


def credentials_of(
    token_file: Path | None,
    headers: tuple[str, ...],
    ca_file: Path | None,
    cert_file: Path | None,
    key_file: Path | None,
) -> Credentials:
    """What the options say is shown to servers. Raises UsageError."""
    from edgewake.edge.client.credentials import Credentials, TokenFile

    try:
        token = os.environ.get("EDGEWAKE_TOKEN") if token_file is None else TokenFile(token_file)
        pairs = [header.partition(":") for header in headers]
        wrong = [name for name, colon, _ in pairs if not colon]
        if wrong:
            raise ValueError(f"--header {wrong[0][:40]!r}: expected NAME:VALUE")
        given = {name.strip(): value.strip() for name, _, value in pairs}
        return Credentials(token or None, given, ca_file, cert_file, key_file)
    except (OSError, ValueError) as error:
        raise click.UsageError(str(error)) from error
