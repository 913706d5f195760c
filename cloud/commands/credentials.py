"""`edgewake devices add`, `revoke`, `claim`: what devices prove themselves with at the broker."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, TextIO

import click

from edgewake.cloud.commands.common import completion
from edgewake.cloud.commands.common.api_client import OpsApi, shows
from edgewake.cloud.commands.common.output import print_item, print_json
from edgewake.protocol.names import is_device

PAGE: Final = 1_000
"""Devices of one request."""
FILE_BYTES_MAX: Final = 8 << 20
"""Of a file of names: more than twice as many as may have a password."""
HEADINGS: Final = ("device", "name", "names", "devices")
"""What the first line of a file of names may say in place of a name."""


@click.command("add")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--from",
    "file",
    type=click.File("r", encoding="utf-8-sig"),
    help="CSV with a name in the first column of each line; - for standard input.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write device,password here, readable by its owner only; default: standard output.",
)
@click.option(
    "--replace", is_flag=True, help="Also for devices that have one; the old one ends then."
)
@shows
def add(
    api: OpsApi, names: tuple[str, ...], file: TextIO | None, out: Path | None, *, replace: bool
) -> None:
    """Give devices a password of their own for the MQTT broker. It is shown this once."""
    wanted = [*names, *(_names(file) if file is not None else ())]
    if not wanted:
        raise click.UsageError("expected a NAME, or --from FILE")
    wrong = [name for name in wanted if not is_device(name)]
    if wrong:
        raise click.BadParameter(
            f"{wrong[0]!r}: expected 1 to 64 of A-Z a-z 0-9 . _ -, a letter or digit first",
            param_hint="NAME",
        )
    given: list[dict[str, Any]] = []
    broker = None
    target = None if out is None else _new_file(out)
    for at in range(0, len(wanted), PAGE):
        found = api.ask(
            "POST", "/v1/credentials", body={"devices": wanted[at : at + PAGE], "replace": replace}
        ).json()
        given += found["items"]
        broker = found["broker"]
        if target is not None:
            _write_rows(target, found["items"])  # each page at once: they are shown this once
    if target is not None:
        target.close()
        click.echo(f"{out}: {len(given)} devices", err=True)
    elif api.as_json:
        print_json({"items": given, "broker": broker})
    elif file is not None:
        _write_rows(sys.stdout, given)
    else:
        for one in given:
            click.echo("\n".join(_lines(one, broker)))


@click.command("revoke")
@click.argument("device", shell_complete=completion.devices)
@shows
def revoke(api: OpsApi, device: str) -> None:
    """Take a device's password back; the broker ends its connection within seconds."""
    if not is_device(device):
        raise click.BadParameter(f"{device!r} is not the name of a device", param_hint="DEVICE")
    api.ask("DELETE", f"/v1/credentials/{device}")
    click.echo(f"{device}: its password is worth nothing any more", err=True)


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
    """Make a code by which devices get a password by themselves (`edgewake-agent init --claim`)."""
    made = api.ask(
        "POST", "/v1/claims", body={"count": count, "life_s": hours * 3600, "prefix": prefix}
    ).json()
    print_item(made, as_json=api.as_json)


def _names(file: TextIO) -> list[str]:
    text = file.read(FILE_BYTES_MAX + 1)
    if len(text) > FILE_BYTES_MAX:
        raise click.BadParameter(f"expected at most {FILE_BYTES_MAX} characters", param_hint="FROM")
    rows = [row[0].strip() for row in csv.reader(text.splitlines()) if row and row[0].strip()]
    return rows[1:] if rows and rows[0].lower() in HEADINGS else rows


def _new_file(path: Path) -> TextIO:
    try:
        return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w")
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}", param_hint="--out") from error


def _write_rows(file: TextIO, items: Iterable[dict[str, Any]]) -> None:
    csv.writer(file, lineterminator="\n").writerows(
        (one["device"], one["password"]) for one in items
    )
    file.flush()


def _lines(one: dict[str, Any], broker: dict[str, Any] | None) -> list[str]:
    """What the device is to be told."""
    device, password = one["device"], one["password"]
    found = [f"{device}", f"  user name  {device}", f"  password   {password}"]
    if broker is None:
        return found
    host, port = broker["host"], broker["port"]
    return [
        *found,
        "  by hand",
        f"    mosquitto_pub -h {host} -p {port} -u {device} -P {password} -q 1 "
        f"-t ew/v1/{device}/up/hello -m '{{\"temperature\": 21.5}}'",
        "  with an agent",
        f"    printf %s {password} > device.password",
        f"    edgewake-agent init --device {device} --broker {host}:{port} "
        "--password-file device.password --data-dir edgewake-data agent.toml",
    ]
