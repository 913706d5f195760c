"""`edgewake sleep`: read what there is, sleep until more has come, read on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgewake.edge.client import completion
from edgewake.edge.client.cli import (
    DEFAULT_SERVER,
    FILE,
    credentials_of,
    subscription_of,
    with_credentials,
)

if TYPE_CHECKING:
    from pydantic import ValidationError

    from edgewake.edge.client.asked import Options, Published
    from edgewake.protocol.leases.lease import QuietHours, Subscription, WakePolicy

DEFAULT_PROXY = "http://127.0.0.1:8703"


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
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    help="Address of a push proxy; several are tried in turn. Default: that of a running "
    "`edgewake up`, or port 8703.",
)
@click.option("--where", help='SQL condition on the fields, e.g. "speed_kmh > 50".')
@click.option("--select", help='SQL columns, e.g. "device, speed_kmh / 3.6 AS speed_ms".')
@click.option(
    "--devices-file",
    type=FILE,
    help="A file with up to 1,000 devices, one a line: these alone.",
)
@click.option("--sample", type=float, help="A share of all devices, e.g. 0.1.")
@click.option("--per", help="For --sample: fields that tell what is the same thing.")
@click.option(
    "--min-events",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="Wake when this many events wait.",
)
@click.option(
    "--max-wait",
    "max_wait_s",
    type=click.FloatRange(0, 86_400),
    default=0.0,
    help="Wake for fewer when the oldest has waited this long, s.",
)
@click.option(
    "--min-interval",
    "min_interval_s",
    type=click.FloatRange(0, 86_400),
    default=5.0,
    show_default=True,
    help="The shortest time between two wake-ups, s.",
)
@click.option("--quiet", metavar="HH:MM-HH:MM", help="Hours without wake-ups, e.g. 22:00-07:00.")
@click.option(
    "--timezone", default="UTC", show_default=True, help="Of --quiet, e.g. Europe/Berlin."
)
@click.option(
    "--ttl",
    "ttl_s",
    type=click.IntRange(60, 30 * 86_400),
    default=7 * 86_400,
    show_default=True,
    help="Seconds for which the proxy counts for a program that does not come back.",
)
@click.option(
    "--from",
    "start",
    default="latest",
    show_default=True,
    help="earliest, latest, an ISO 8601 time, a time ago such as -15m, or ms since 1970.",
)
@click.option(
    "--cursor-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Save the cursor here, and the lease in FILE.lease, and go on from them next time.",
)
@click.option("--once", is_flag=True, help="End once something was read.")
@with_credentials
def sleep(
    streams: tuple[str, ...],
    publication: str | None,
    servers: tuple[str, ...],
    proxies: tuple[str, ...],
    where: str | None,
    select: str | None,
    devices_file: Path | None,
    sample: float | None,
    per: str | None,
    min_events: int,
    max_wait_s: float,
    min_interval_s: float,
    quiet: str | None,
    timezone: str,
    ttl_s: int,
    start: str,
    cursor_file: Path | None,
    once: bool,
    token_file: Path | None,
    headers: tuple[str, ...],
    ca_file: Path | None,
    cert_file: Path | None,
    key_file: Path | None,
) -> None:
    """Read STREAM (a stream or a query) as JSON lines, sleep until more has come, and read on.

    While it sleeps a push proxy counts, and no event travels. What happens is told on standard
    error.
    """
    from pydantic import ValidationError

    from edgewake.edge.client.follow import checked_address
    from edgewake.edge.client.nap import Nap, run
    from edgewake.protocol import installation
    from edgewake.protocol.leases.lease import WakePolicy

    found = installation.find()
    servers = servers or found.access or (DEFAULT_SERVER,)
    proxies = proxies or found.push or (DEFAULT_PROXY,)
    try:
        for address in (*servers, *proxies):
            checked_address(address)
    except ValueError as error:
        raise click.UsageError(f"--server, --proxy: {error}") from error
    subscription = subscription_of(streams, publication, where, select)
    try:
        wake = WakePolicy(
            min_events=min_events,
            max_wait_s=max_wait_s,
            min_interval_s=min_interval_s,
            quiet=None if quiet is None else _hours(quiet, timezone),
        )
        options = _options(subscription, devices_file, sample, per, wake)
    except ValidationError as error:
        raise click.UsageError(_said(error)) from error
    except ValueError as error:  # too many, or not text
        raise click.UsageError(f"--devices-file: {error}") from error
    credentials = credentials_of(token_file, headers, ca_file, cert_file, key_file)
    nap = Nap(
        servers,
        proxies,
        subscription,
        wake,
        ttl_s,
        start,
        cursor_file,
        once,
        credentials,
        options,
    )
    sys.exit(run(nap))


def _options(
    subscription: Subscription | Published,
    devices_file: Path | None,
    sample: float | None,
    per: str | None,
    wake: WakePolicy,
) -> Options:
    """What of it, where a lease takes that. Raises ValueError and ValidationError."""
    from edgewake.edge.client.asked import Options
    from edgewake.edge.client.lease import request_of

    devices = None if devices_file is None else devices_file.read_text("utf-8").split()
    options = Options(devices, sample, per=per.split(",") if per else ())
    request_of(subscription, "", wake, options=options)
    return options


def _hours(quiet: str, timezone: str) -> QuietHours:
    """The hours without wake-ups. Raises ValidationError."""
    from edgewake.protocol.leases.lease import QuietHours

    begin, _, end = quiet.partition("-")
    return QuietHours(start=begin, end=end, timezone=timezone)


def _said(error: ValidationError) -> str:
    """The first fault, with the option that it is in."""
    first = error.errors()[0]
    names = {
        **dict.fromkeys(("start", "end"), "--quiet"),
        "timezone": "--timezone",
        "devices": "--devices-file",
        "sample": "--sample",
        "per": "--per",
    }
    option = next((names[one] for one in map(str, first["loc"]) if one in names), "STREAM")
    return f"{option}: {first['msg']}"
