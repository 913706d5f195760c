"""Ask a device from a terminal: `edgewake command`, `edgewake config`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from edgewake.cloud.commands.common import completion
from edgewake.cloud.commands.common.api_client import OpsApi, api_options, fail, shows
from edgewake.cloud.commands.common.output import print_item

WAIT_S: Final = 60
LOOK_EVERY_S: Final = 0.3
_GOOD: Final = ("done", "waiting")


def _device(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    from edgewake.protocol.names import is_device

    if not is_device(value):
        raise click.BadParameter(f"{value!r} is not the name of a device")
    return value


_device_argument = click.argument("device", callback=_device, shell_complete=completion.devices)
_wait = click.option("--wait", "wait_s", type=click.IntRange(0, 86_400), is_flag=False,
    flag_value=WAIT_S, default=0, metavar="[SECONDS]",
    help=f"Wait for the device's answer; {WAIT_S} s where nothing is said.")  # fmt: skip
_expires = click.option(
    "--expires",
    "expires_s",
    type=click.IntRange(1),
    help="Seconds after which it is not begun any more.",
)


@click.command(context_settings={"ignore_unknown_options": False})
@api_options
@_device_argument
@click.argument("name")
@click.argument("args", nargs=-1)
@_wait
@_expires
def command(
    make_api: Callable[[], OpsApi],
    device: str,
    name: str,
    args: tuple[str, ...],
    wait_s: int,
    expires_s: int | None,
) -> None:
    """Ask DEVICE for the command that its own configuration calls NAME; it is done once.

    Exit 1 where it was not done.
    """
    api = make_api()
    body: dict[str, Any] = {"name": name, "args": args} | (
        {} if expires_s is None else {"expires_s": expires_s}
    )
    found = api.ask("POST", f"/v1/devices/{device}/commands", body=body).json()
    _show(api, found, f"/v1/devices/{device}/commands/{found['id']}", wait_s)


@click.group()
@api_options
@click.pass_context
def config(context: click.Context, make_api: Callable[[], OpsApi]) -> None:
    """Look at the configuration that devices were given from here, and give them one."""
    context.obj = make_api


@config.command("get")
@_device_argument
@shows
def get(api: OpsApi, device: str) -> None:
    """Show what DEVICE was set to last, and what it said of it."""
    print_item(api.ask("GET", f"/v1/devices/{device}/config").json(), as_json=api.as_json)


@config.command("set")
@_device_argument
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option(
    "--version", type=click.IntRange(1), help="Greater than all before; default: the next one."
)
@_wait
@_expires
@shows
def set_(
    api: OpsApi, device: str, file: Path, version: int | None, wait_s: int, expires_s: int | None
) -> None:
    """Set DEVICE to what FILE says (TOML). Exit 1 where the device refused it or went back."""
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{file}: {error}")
    wanted = {"text": text, "version": version, "expires_s": expires_s}
    path = f"/v1/devices/{device}/config"
    found = api.ask(
        "PUT", path, body={name: value for name, value in wanted.items() if value is not None}
    ).json()
    _show(api, found, path, wait_s)


def _show(api: OpsApi, found: dict[str, Any], path: str, wait_s: int) -> None:
    deadline = time.monotonic() + wait_s
    asked = found["id"]
    while found["state"] == "waiting" and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_S)
        found = api.ask("GET", path).json()
        if found["id"] != asked:
            fail("somebody else has set it since: look at it with `config get`, and set it again")
    print_item(found, as_json=api.as_json)
    if found["state"] not in _GOOD:
        fail(f"{found['device']}: {found['state']}: {(found['answer'] or {}).get('detail', '')}")
