"""`edgewake devices add`, `revoke`, `credentials`: what devices prove who they are with.

A certificate's key is made here, or on the device (`--request`): the server never sees one.
"""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

import click

from edgewake.cloud.commands.common import completion
from edgewake.cloud.commands.common.api_client import OpsApi, shows
from edgewake.cloud.commands.common.output import print_items, print_json
from edgewake.protocol.names import is_device

PAGE: Final = 1_000
"""Devices of one request."""
SIGNED_PAGE: Final = 50
"""Devices per request when signing requests come along; each has 400 to 3,000 characters."""
AUTHORITY: Final = "edgewake-ca.crt"
"""File of the authority that devices trust, beside their certificates."""
REQUEST_CHARS_MAX: Final = 8_192
FILE_BYTES_MAX: Final = 8 << 20
"""Size of a file of names: more than twice what all devices that may have a password need."""
READING: Final = '{"temperature": 21.5}'
HEADINGS: Final = ("device", "name", "names", "devices")
"""What the first line of a file of names may say in place of a name."""

from_file = click.option(
    "--from",
    "file",
    type=click.File("r", encoding="utf-8-sig"),
    help="CSV with a name in the first column of each line; - for standard input.",
)


@click.command("add")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@from_file
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Passwords: write device,password to this file, readable by its owner only; default: "
    "standard output. Certificates: the folder for NAME.crt and NAME.key; default: here.",
)
@click.option(
    "--replace", is_flag=True, help="Also for devices that have one; the old one ends then."
)
@click.option("--certificate", is_flag=True, help="A certificate in place of a password.")
@click.option(
    "--request",
    "request_file",
    type=click.File("r", encoding="ascii"),
    help="A signing request (PKCS #10, PEM) of the one NAME: its key stays on the device.",
)
@shows
def add(
    api: OpsApi,
    names: tuple[str, ...],
    file: TextIO | None,
    out: Path | None,
    request_file: TextIO | None,
    *,
    replace: bool,
    certificate: bool,
) -> None:
    """Give devices a password or a certificate of their own for the MQTT broker.

    A password is shown this once.
    """
    wanted = [*names, *(_names(file) if file is not None else ())]
    if not wanted:
        raise click.UsageError("expected a NAME, or --from FILE")
    wrong = [name for name in wanted if not is_device(name)]
    if wrong:
        raise click.BadParameter(
            f"{wrong[0]!r}: expected 1 to 64 of A-Z a-z 0-9 . _ -, a letter or digit first",
            param_hint="NAME",
        )
    if request_file is not None or certificate:
        if request_file is not None and len(wanted) > 1:
            raise click.UsageError("--request: expected one NAME, the device that made the request")
        request = None if request_file is None else request_file.read(REQUEST_CHARS_MAX + 1)
        _certify(api, wanted, out or Path(), request, replace=replace)
    else:
        _give_passwords(api, wanted, out, replace=replace, as_rows=file is not None)


def _give_passwords(
    api: OpsApi, wanted: Sequence[str], out: Path | None, *, replace: bool, as_rows: bool
) -> None:
    given: list[dict[str, Any]] = []
    found: dict[str, Any] = {}
    target = None if out is None else _new_file(out)
    for at in range(0, len(wanted), PAGE):
        found = api.ask(
            "POST", "/v1/credentials", body={"devices": wanted[at : at + PAGE], "replace": replace}
        ).json()
        given += found["items"]
        if target is not None:
            _write_rows(target, found["items"])  # each page at once: they are shown this once
    if target is not None:
        target.close()
        click.echo(f"{out}: {len(given)} devices", err=True)
    elif api.as_json:
        print_json({**found, "items": given})
    elif as_rows:
        _write_rows(sys.stdout, given)
    else:
        for one in given:
            click.echo("\n".join(_lines(one, found)))


def _certify(
    api: OpsApi, wanted: Sequence[str], folder: Path, request: str | None, *, replace: bool
) -> None:
    """Certificates, and the keys that were made here, into a folder."""
    given: list[dict[str, Any]] = []
    names = list(dict.fromkeys(wanted))
    found: dict[str, Any] = {}
    for at in range(0, len(names), SIGNED_PAGE):
        keys = {} if request is not None else _new_keys(names[at : at + SIGNED_PAGE])
        items = [
            {"device": name, "request": request if request is not None else keys[name][1]}
            for name in names[at : at + SIGNED_PAGE]
        ]
        found = api.ask(
            "POST", "/v1/certificates", body={"items": items, "replace": replace}
        ).json()
        given += found["items"]
        _write_certificates(folder, found, {name: key for name, (key, _) in keys.items()})
    if api.as_json:
        print_json({**found, "items": given})
        return
    for one in given[:1]:
        click.echo("\n".join(_certificate_lines(one["device"], folder, found["broker"])))
    if len(given) > 1:
        click.echo(f"{folder}: {len(given)} devices, a .crt and a .key each", err=True)


def _new_keys(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Name → its key and its signing request."""
    from edgewake.protocol.certificates import authority

    found = {}
    for name in names:
        key = authority.new_key()
        found[name] = (key, authority.request(key, name))
    return found


def _write_certificates(folder: Path, found: dict[str, Any], keys: dict[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if found.get("authority"):
            (folder / AUTHORITY).write_text(found["authority"], "ascii")
        for one in found["items"]:
            device = one["device"]
            if device in keys:
                key_file = folder / f"{device}.key"
                key_file.unlink(missing_ok=True)
                with _new_file(key_file) as file:
                    file.write(keys[device])
            (folder / f"{device}.crt").write_text(one["certificate"], "ascii")
    except OSError as error:
        raise click.BadParameter(f"{folder}: {error.strerror}", param_hint="--out") from error


def _certificate_lines(device: str, folder: Path, broker: dict[str, Any] | None) -> list[str]:
    """What to do with a certificate."""
    authority, cert, key = (folder / name for name in (AUTHORITY, f"{device}.crt", f"{device}.key"))
    found = [
        device,
        f"  certificate  {cert}",
        f"  its key      {key}{'' if key.exists() else ' (on the device)'}",
        f"  trusted CA   {authority}",
    ]
    if broker is None:
        return found
    host, port = broker["host"], broker["port"]
    return [
        *found,
        "  by hand",
        f"    mosquitto_pub -h {host} -p {port} --cafile {authority} --cert {cert} --key {key} "
        f"-q 1 -t ew/v1/{device}/up/hello -m '{{\"temperature\": 21.5}}'",
        "  with an agent",
        f"    edgewake-agent init --device {device} --broker {host}:{port} --ca-file {authority} "
        f"--cert-file {cert} --key-file {key} --data-dir edgewake-data agent.toml",
    ]


@click.command("revoke")
@click.argument("devices", metavar="[DEVICE]...", nargs=-1, shell_complete=completion.devices)
@from_file
@shows
def revoke(api: OpsApi, devices: tuple[str, ...], file: TextIO | None) -> None:
    """Take back what devices have; the broker ends their connections within seconds."""
    wanted = [*devices, *(_names(file) if file is not None else ())]
    if not wanted:
        raise click.UsageError("expected a DEVICE, or --from FILE")
    wrong = [name for name in wanted if not is_device(name)]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is not the name of a device", param_hint="DEVICE")
    refused = 0
    for device in dict.fromkeys(wanted):
        try:
            api.ask("DELETE", f"/v1/credentials/{device}")
        except click.ClickException as error:  # the others are shut out all the same
            refused += 1
            click.echo(f"{device}: {error.format_message()}", err=True)
        else:
            click.echo(f"{device}: what it had is worth nothing any more", err=True)
    if refused:
        raise SystemExit(1)


@click.command("credentials")
@shows
def credentials(api: OpsApi) -> None:
    """Show which devices have a password or a certificate from here."""
    found = api.ask("GET", "/v1/credentials").json()
    rows = [{"device": device, "kind": "password", "until": None} for device in found["devices"]]
    rows += [{**one, "kind": "certificate"} for one in found["certificates"]]
    rows.sort(key=lambda row: row["device"])
    print_items(rows, ("device", "kind", "until"), as_json=api.as_json)


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


def _lines(one: dict[str, Any], given: dict[str, Any]) -> list[str]:
    """The lines that the device needs, of all that was `given`."""
    device, password = one["device"], one["password"]
    broker, authority = given["broker"], given.get("authority")
    found = [f"{device}", f"  user name  {device}", f"  password   {password}"]
    if broker is None:
        return found
    trusted, agent_trusts = "", ""
    if authority:
        found += [
            "  the CA that it trusts: paste this there",
            # Not indented: the shell looks for END alone.
            f"cat > {AUTHORITY} <<END",
            *authority.strip().split("\n"),
            "END",
        ]
        trusted, agent_trusts = f"--cafile {AUTHORITY} ", f"--ca-file {AUTHORITY} "
    host, port = broker["host"], broker["port"]
    found += [
        "  by hand",
        f"    mosquitto_pub -h {host} -p {port} {trusted}-u {device} -P {password} -q 1 "
        f"-t ew/v1/{device}/up/hello -m '{READING}'",
    ]
    if given.get("http"):
        also = f"--cacert {AUTHORITY} " if authority else ""
        path = f"/ew/v1/{device}/up/hello"
        found += [
            "  or without MQTT",
            f"    curl {also}-u {device}:{password} -d '{READING}' {given['http']}{path}",
        ]
    return [
        *found,
        "  with an agent",
        f"    printf %s {password} > device.password",
        f"    edgewake-agent init --device {device} --broker {host}:{port} {agent_trusts}"
        "--password-file device.password --data-dir edgewake-data agent.toml",
    ]
