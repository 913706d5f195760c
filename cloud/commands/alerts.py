"""Alerts in a terminal: `edgewake alert`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TextIO

import click

from edgewake.cloud.commands.common import completion
from edgewake.cloud.commands.common.api_client import OpsApi, api_options, fail, shows
from edgewake.cloud.commands.common.arguments import query_name
from edgewake.cloud.commands.common.output import print_item, print_items, print_json, tell
from edgewake.cloud.commands.common.tables_file import tables_of

RULE_COLUMNS: Final = ("name", "severity", "looks_at", "alerts", "tell", "text")
RAISED_COLUMNS: Final = ("rule", "key", "state", "since", "value", "by")
DESTINATION_COLUMNS: Final = ("name", "kind", "where", "waiting", "last_error")
SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

_rule = click.argument("rule", callback=query_name, shell_complete=completion.alerts)
_key = click.option("--alert", "which", metavar="KEY", help="Only this alert of the rule.")
_why = click.option("--why", default="", help="Stands in its history.")


def _seconds(_context: click.Context, _argument: click.Parameter, value: str) -> int:
    number, unit = value[:-1], value[-1:]
    if value == "0":
        return 0
    if not (number.isascii() and number.isdigit() and unit in SECONDS):
        raise click.BadParameter(f"{value!r}: expected e.g. 90s, 30m, 8h, 2d, or 0 for no longer")
    return int(number) * SECONDS[unit]


@click.group()
@api_options
@click.pass_context
def alert(context: click.Context, make_api: Callable[[], OpsApi]) -> None:
    """Manage alerts: rules, what fires, and who is notified."""
    context.obj = make_api


@alert.command("list")
@click.option("--rules", is_flag=True, help="The rules, instead of what is raised.")
@shows
def list_alerts(api: OpsApi, rules: bool) -> None:
    """Show what is raised, what fires first; or the rules."""
    if rules:
        print_items(list(api.items("/v1/alerts")), RULE_COLUMNS, as_json=api.as_json)
    else:
        print_items(list(api.items("/v1/raised")), RAISED_COLUMNS, as_json=api.as_json)


@alert.command("show")
@_rule
@shows
def show(api: OpsApi, rule: str) -> None:
    """Show one rule, its alerts, and the notes that were sent."""
    found = api.ask("GET", f"/v1/alerts/{rule}").json()
    if api.as_json:
        return print_json(found)
    print_item({name: value for name, value in found["rule"].items() if value}, as_json=False)
    print_items(found["alerts"], ("key", "state", "since", "value", "by"), as_json=False)
    for one in found["alerts"]:
        tell(f"{one['key']}:")
        print_items(one["history"], ("at", "what", "why", "who", "value"), as_json=False)
    columns = ("made_at", "destination", "state", "attempts", "title", "error")
    return print_items(found["notes"], columns, as_json=False)


@alert.command("apply")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--check", "is_trial", is_flag=True, help="Change nothing: say what would fire.")
@shows
def apply(api: OpsApi, file: Path, is_trial: bool) -> None:
    """Replace rules with those of the same names in FILE.

    FILE is TOML with a table [NAME] for each rule, or JSON.
    """
    for name, text in tables_of(file, "rule", "with what it looks at in it").items():
        if is_trial:
            found = api.ask("POST", "/v1/alerts:check", body=text, about=f"{file}: {name}: ").json()
            tell(f"{file}: {name}: {_sentence(found)}")
        else:
            made = api.ask("PUT", f"/v1/alerts/{name}", body=text, about=f"{file}: {name}: ").json()
            tell(f"{name}: version {made['version']}, looks at {made['looks_at']}", err=True)


def _sentence(trial: dict[str, Any]) -> str:
    if not trial["is_known"]:
        return str(trial["note"])
    count = len(trial["episodes"]) + trial["more"]
    cut = " (of the newest readings)" if trial["is_cut"] else ""
    return f"good; in the last hour it would have fired {count} times, {trial['keys']} keys{cut}"


@alert.command("delete")
@_rule
@shows
def delete(api: OpsApi, rule: str) -> None:
    """Remove a rule and its alerts."""
    api.ask("DELETE", f"/v1/alerts/{rule}")
    tell(f"{rule}: removed", err=True)


@alert.command("ack")
@_rule
@_key
@_why
@shows
def acknowledge(api: OpsApi, rule: str, which: str | None, why: str) -> None:
    """Acknowledge a firing alert: no reminders until it is over."""
    api.ask("POST", f"/v1/alerts/{rule}/ack", body={"key": which, "why": why})
    tell(f"{rule}: acknowledged", err=True)


@alert.command("snooze")
@_rule
@click.argument("duration", callback=_seconds)
@_key
@_why
@shows
def snooze(api: OpsApi, rule: str, duration: int, which: str | None, why: str) -> None:
    """Send nothing for DURATION (30m, 8h; 0: send again). What still fires then is sent then."""
    body = {"key": which, "why": why, "seconds": duration}
    api.ask("POST", f"/v1/alerts/{rule}/snooze", body=body)
    tell(f"{rule}: {'snoozed' if duration else 'is told again'}", err=True)


@alert.group()
def destination() -> None:
    """Manage the destinations of alerts."""


@destination.command("list")
@shows
def list_destinations(api: OpsApi) -> None:
    """Show all of them; their addresses are not shown."""
    print_items(list(api.items("/v1/destinations")), DESTINATION_COLUMNS, as_json=api.as_json)


@destination.command("set")
@click.argument("name", callback=query_name)
@click.option(
    "--address", prompt="Address", hide_input=True, help="Asked for where it is not said."
)
@click.option(
    "--header",
    "lines",
    multiple=True,
    metavar="NAME:VALUE",
    help="A webhook's own header for each call; repeat it for more. Without one those of before "
    "stay, as long as the address does.",
)
@click.option(
    "--headers-file",
    type=click.File(encoding="utf-8"),
    help="A file with such headers, one a line; `-` is standard input. Other people of this "
    "machine see what a command line says.",
)
@shows
def set_destination(
    api: OpsApi, name: str, address: str, lines: tuple[str, ...], headers_file: TextIO | None
) -> None:
    """Keep a webhook (https://…) or an address of Apprise (mailtos://…) under NAME."""
    body: dict[str, Any] = {"address": address}
    if lines or headers_file is not None:
        of_file = [] if headers_file is None else headers_file.read().splitlines()
        body["headers"] = _headers([*lines, *filter(str.strip, of_file)])
    made = api.ask("PUT", f"/v1/destinations/{name}", body=body).json()
    tell(f"{name}: {made['kind']} {made['where']}", err=True)
    if made["secret"]:
        tell(f"its secret, shown this once: {made['secret']}")


def _headers(lines: Iterable[str]) -> dict[str, str]:
    """Headers of `NAME: VALUE`; an error shows no value."""
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        name, colon, value = line.partition(":")
        if not colon or name.strip() in found:
            why = "it is there twice" if colon else "expected NAME: VALUE"
            fail(f"header {number}: {why}")
        found[name.strip()] = value.strip()
    return found


@destination.command("delete")
@click.argument("name", callback=query_name)
@shows
def delete_destination(api: OpsApi, name: str) -> None:
    """Forget one that no rule tells."""
    api.ask("DELETE", f"/v1/destinations/{name}")
    tell(f"{name}: removed", err=True)


@alert.command("try")
@click.argument("name", callback=query_name, metavar="DESTINATION")
@shows
def try_destination(api: OpsApi, name: str) -> None:
    """Send a test to DESTINATION now. Exit code 1: it was not sent."""
    found = api.ask("POST", f"/v1/destinations/{name}/try", timeout_s=60).json()
    if not found["sent"]:
        fail(f"{name}: not sent: {found['error']}")
    tell(f"{name}: sent", err=True)
