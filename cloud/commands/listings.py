"""Lists of the operations API in a terminal, and erasures there.

`edgewake devices`, `streams`, `leases`, `dead-letters`, `ack`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

import click

from edgewake.cloud.commands import claims, credentials, erasures
from edgewake.cloud.commands.common import completion
from edgewake.cloud.commands.common.api_client import OpsApi, api_options, shows
from edgewake.cloud.commands.common.output import print_item, print_items

DEVICE_COLUMNS: Final = (
    "device",
    "state",
    "via",
    "last_seen",
    "backlog_readings",
    "lost_readings",
    "streams",
)
STREAM_COLUMNS: Final = ("name", "readings_per_s", "records_per_s", "fields", "description")
GAP_COLUMNS: Final = ("at", "device", "reason", "count", "epoch", "seq")
FIELD_COLUMNS: Final = (
    "name",
    "came_as",
    "type",
    "unit",
    "label",
    "classes",
    "values",
    "odd",
    "rounded",
    "sample",
)
LEASE_COLUMNS: Final = ("id", "state", "streams", "endpoint", "count", "failures", "due_at")
LETTER_COLUMNS: Final = ("offset", "received_at", "device", "reason", "detail")
REPLAY_COLUMNS: Final = ("letter", "device", "stream", "partition", "offset", "was_replayed")
LETTERS_PAGE: Final = 100
DAY_MS: Final = 86_400_000
ROWS_DEFAULT: Final = 100

_limit = click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=ROWS_DEFAULT,
    show_default=True,
    help="Show at most N.",
)


def _name(_context: click.Context, argument: click.Parameter, value: str) -> str:
    from edgewake.protocol.names import is_device, is_stream

    if not (is_device(value) if argument.name == "device" else is_stream(value)):
        raise click.BadParameter(f"{value!r} is not the name of a {argument.name}")
    return value


@click.group()
@api_options
@click.pass_context
def devices(context: click.Context, make_api: Callable[[], OpsApi]) -> None:
    """Look at devices, give them passwords, forget them."""
    context.obj = make_api


@devices.command("list")
@click.option("--state", type=click.Choice(["online", "offline", "silent"]), help="Only those.")
@click.option("--find", "part", help="Only those with this in their name.")
@click.option("--group", help="Only those in this group.")
@_limit
@shows
def list_devices(
    api: OpsApi, state: str | None, part: str | None, group: str | None, limit: int
) -> None:
    """Show devices by name."""
    asked = {"state": state, "q": part, "group": group}
    found = api.items("/v1/devices", {name: value for name, value in asked.items() if value})
    print_items(list(islice(found, limit)), DEVICE_COLUMNS, as_json=api.as_json)


@devices.command("show")
@click.argument("device", callback=_name, shell_complete=completion.devices)
@shows
def show_device(api: OpsApi, device: str) -> None:
    """Show all that is known of one device."""
    print_item(api.ask("GET", f"/v1/devices/{device}").json(), as_json=api.as_json)


@devices.command("note")
@click.argument("device", callback=_name, shell_complete=completion.devices)
@click.argument("text", default="")
@click.option("--group", "groups", multiple=True, help="A group that it is in; several times.")
@shows
def note_device(api: OpsApi, device: str, text: str, groups: tuple[str, ...]) -> None:
    """Say TEXT of DEVICE and put it into groups, in place of what was said before."""
    body = {"note": text, "groups": groups}
    made = api.ask("PUT", f"/v1/devices/{device}/note", body=body).json()
    click.echo(f"{device}: in {', '.join(made['groups']) or 'no group'}", err=True)


@devices.command("history")
@click.argument("device", callback=_name, shell_complete=completion.devices)
@_limit
@shows
def device_history(api: OpsApi, device: str, limit: int) -> None:
    """Show when DEVICE came and went, newest first, as far as this server saw it."""
    asked = {"kind": "device", "name": device, "limit": min(limit, 500)}
    found = api.ask("GET", "/v1/history", params=asked).json()["items"]
    rows = [{"at": one["at"], **one["facts"]} for one in found]
    columns = ("at", "state", "version", "epoch", "lost_readings", "backlog_readings")
    print_items(rows, columns, as_json=api.as_json)


@devices.command("remove")
@click.argument("device", callback=_name, shell_complete=completion.devices)
@shows
def remove_device(api: OpsApi, device: str) -> None:
    """Forget a device. Its readings stay, and it is listed again when it sends again."""
    api.ask("DELETE", f"/v1/devices/{device}")
    click.echo(f"{device}: forgotten", err=True)


@devices.command("erase")
@click.argument("device", callback=_name, shell_complete=completion.devices)
@erasures.yes
@erasures.wait
@shows
def erase_device(api: OpsApi, device: str, is_sure: bool, wait_s: int) -> None:
    """Erase all that a device has sent until now, for good."""
    erasures.confirm(device, is_sure=is_sure)
    erasures.ask(api, f"/v1/devices/{device}/readings", wait_s)


for _command in (
    credentials.add,
    credentials.revoke,
    credentials.credentials,
    claims.claim,
    claims.claims,
    claims.end_claim,
):
    devices.add_command(_command)


@click.group()
@api_options
@click.pass_context
def streams(context: click.Context, make_api: Callable[[], OpsApi]) -> None:
    """Look at streams and their fields."""
    context.obj = make_api


@streams.command("list")
@_limit
@shows
def list_streams(api: OpsApi, limit: int) -> None:
    """Show streams by name, with their rates."""
    print_items(list(islice(api.items("/v1/streams"), limit)), STREAM_COLUMNS, as_json=api.as_json)


@streams.command("show")
@click.argument("stream", callback=_name, shell_complete=completion.streams)
@click.option(
    "--minutes",
    type=click.IntRange(1, 60),
    default=15,
    show_default=True,
    help="Look at readings of the last N minutes.",
)
@shows
def show_stream(api: OpsApi, stream: str, minutes: int) -> None:
    """Show one stream: its fields, how their times were found, and how many values were odd.

    A field has its type, its unit and the name that it came by; odd values come with an example.
    """
    found = api.ask("GET", f"/v1/streams/{stream}").json()
    look = api.ask("GET", f"/v1/streams/{stream}/look", params={"minutes": minutes}).json()
    if api.as_json:
        print_item({**found, "look": look}, as_json=True)
        return
    found["partitions"] = len(found["partitions"])
    found["fields"] = len(found["fields"])
    print_item(
        {
            **found,
            f"last {minutes} min": f"{look['readings']} readings of {look['devices']} devices"
            + (", and more that were not looked at" if look["is_cut"] else ""),
            "times": _times(look),
            "refused": look["refused"],
        },
        as_json=False,
    )
    fields = [
        {**one, "came_as": one["path"] or one["name"], "unit": _units(one)}
        for one in look["fields"]
    ]
    print_items(fields, FIELD_COLUMNS, as_json=False)


def _units(field: dict[str, Any]) -> str:
    """Its unit, and another one that was said of it."""
    unit, other = str(field["unit"]), str(field["other_unit"])
    return f"{unit} (and {other})" if other else unit


def _times(look: dict[str, Any]) -> str:
    """How they were found, in words."""
    at_agents = [
        f"{one['readings']} "
        + ("of their arrival there" if one["how"] == "arrival" else f"found in {one['how']}")
        for one in look["times"]
        if one["by"] == "agent"
    ]
    converted = [
        f"{one['how']} first from {one['first_device']}"
        for one in look["times"]
        if one["by"] == "bridge"
    ]
    others = "the others in t, or by a map"
    words = (
        (look["own_times"], "said by devices" + _in_brackets("converted: ", converted)),
        (
            look["agent_times"],
            "of agents" + _in_brackets("since they began ", [*at_agents, others]),
        ),
        (look["arrival_times"], "of arrival"),
    )
    return ", ".join(f"{count} {text}" for count, text in words if count) or "none"


def _in_brackets(head: str, said: list[str]) -> str:
    return f" ({head}{', '.join(said)})" if said else ""


@streams.command("gaps")
@click.argument("stream", callback=_name, shell_complete=completion.streams)
@click.option("--device", callback=lambda c, o, value: value and _name(c, o, value),
    shell_complete=completion.devices, help="Only of this device.")  # fmt: skip
@_limit
@shows
def stream_gaps(api: OpsApi, stream: str, device: str | None, limit: int) -> None:
    """Show what of a stream was lost or is missing, newest first."""
    asked = {"limit": min(limit, 500)} | ({"device": device} if device else {})
    found = api.ask("GET", f"/v1/streams/{stream}/gaps", params=asked).json()
    print_items(found["items"], GAP_COLUMNS, as_json=api.as_json)
    if found["is_cut"]:
        click.echo(f"of its newest {found['records']} records; there are older ones", err=True)


@streams.command("keep")
@click.argument("stream", callback=_name, shell_complete=completion.streams)
@click.option(
    "--days", type=click.FloatRange(min=1 / 24, max=3650), help="Keep readings for N days."
)
@click.option(
    "--gigabytes", type=click.FloatRange(min=0.001), help="Keep at most so much of each partition."
)
@shows
def keep_stream(api: OpsApi, stream: str, days: float | None, gigabytes: float | None) -> None:
    """Show how long Kafka keeps a stream, or change it. What is older is removed for good."""
    wanted = {}
    if days is not None:
        wanted["retention_ms"] = round(days * DAY_MS)
    if gigabytes is not None:
        wanted["retention_bytes"] = round(gigabytes * (1 << 30))
    if wanted:
        api.ask("PATCH", f"/v1/streams/{stream}", body=wanted)
    print_item(api.ask("GET", f"/v1/streams/{stream}/retention").json(), as_json=api.as_json)


@streams.command("field")
@click.argument("stream", callback=_name, shell_complete=completion.streams)
@click.argument("field")
@click.option(
    "--type",
    "kind",
    type=click.Choice(["number", "string", "boolean"]),
    help="What its values are from now on.",
)
@click.option("--unit", help="Its unit as a UCUM symbol, e.g. Cel, m/s, %.")
@shows
def set_field(api: OpsApi, stream: str, field: str, kind: str | None, unit: str | None) -> None:
    """Decide the type or unit of a FIELD of STREAM, and show it.

    With --type the field may be new, and so may its stream: so it is declared before a device sends
    it. Devices that were asked to wait because of it are accepted when they send again.
    """
    wanted = {"type": kind, "unit": unit}
    change = {name: value for name, value in wanted.items() if value is not None}
    if not change:
        raise click.UsageError("expected --type or --unit")
    found = api.ask("PATCH", f"/v1/streams/{stream}", body={"fields": {field: change}}).json()
    print_item({"field": field, **found["fields"][field]}, as_json=api.as_json)


@streams.command("describe")
@click.argument("stream", callback=_name, shell_complete=completion.streams)
@click.argument("text")
@shows
def describe_stream(api: OpsApi, stream: str, text: str) -> None:
    """Say in TEXT what STREAM holds, in place of what was said before."""
    api.ask("PATCH", f"/v1/streams/{stream}", body={"description": text})
    click.echo(f"{stream}: {text}", err=True)


@streams.command("delete")
@click.argument("stream", callback=_name, shell_complete=completion.streams)
@click.option("--with-queries", is_flag=True, help="Remove the queries that read it, too.")
@erasures.yes
@erasures.wait
@shows
def delete_stream(api: OpsApi, stream: str, with_queries: bool, is_sure: bool, wait_s: int) -> None:
    """Erase a stream for good: readings, results, summaries and files of the lake."""
    erasures.confirm(stream, is_sure=is_sure)
    erasures.ask(api, f"/v1/streams/{stream}?queries={str(with_queries).lower()}", wait_s)


@streams.command("erasures")
@_limit
@shows
def list_erasures(api: OpsApi, limit: int) -> None:
    """Show what is being erased, and what was."""
    found = api.ask("GET", "/v1/erasures", params={"limit": min(limit, 500)}).json()
    print_items(found, erasures.COLUMNS, as_json=api.as_json)


@click.command()
@_limit
@api_options
def leases(make_api: Callable[[], OpsApi], limit: int) -> None:
    """List the leases of sleeping clients."""
    api = make_api()
    print_items(list(islice(api.items("/v1/leases"), limit)), LEASE_COLUMNS, as_json=api.as_json)


@click.group("dead-letters")
@api_options
@click.pass_context
def dead_letters(context: click.Context, make_api: Callable[[], OpsApi]) -> None:
    """Look at messages that were refused, and give them back."""
    context.obj = make_api


@dead_letters.command("list")
@click.option(
    "--device",
    shell_complete=completion.devices,
    callback=lambda context, option, value: value and _name(context, option, value),
    help="Only of this device.",
)
@click.option("--reason", help="Only those with this reason, e.g. field_type.")
@_limit
@shows
def list_letters(api: OpsApi, device: str | None, reason: str | None, limit: int) -> None:
    """Show refused messages, newest first."""
    wanted = {name: value for name, value in (("device", device), ("reason", reason)) if value}
    found: list[dict[str, Any]] = []
    before: dict[str, int] = {}
    # A page may be empty and lead on: the server looks at a bounded number of letters for each.
    while len(found) < limit:
        page = api.ask(
            "GET",
            "/v1/dead-letters",
            params={"limit": min(LETTERS_PAGE, limit - len(found)), **wanted, **before},
        ).json()
        found += page["items"]
        if page["next"] is None or page["next"] >= before.get("before", page["next"] + 1):
            break
        before = {"before": page["next"]}
    print_items(found, LETTER_COLUMNS, as_json=api.as_json)


@dead_letters.command("show")
@click.argument("offset", type=click.IntRange(min=0))
@shows
def show_letter(api: OpsApi, offset: int) -> None:
    """Write the payload of one refused message to standard output, byte for byte."""
    sys.stdout.buffer.write(api.ask("GET", f"/v1/dead-letters/{offset}").content)


@dead_letters.command("replay")
@click.argument("offset", type=click.IntRange(min=0), nargs=-1, required=True)
@shows
def replay_letters(api: OpsApi, offset: tuple[int, ...]) -> None:
    """Give refused messages back to their streams, once the cause is fixed.

    A second time changes nothing.
    """
    done = [
        api.ask("POST", f"/v1/dead-letters/{one}/replay", about=f"dead letter {one}: ").json()
        for one in offset
    ]
    print_items(done, REPLAY_COLUMNS, as_json=api.as_json)


@click.command()
@click.argument("token")
@api_options
def ack(make_api: Callable[[], OpsApi], token: str) -> None:
    """Show how far the frame came that was acknowledged with TOKEN."""
    import re

    from edgewake.protocol.frames.ack import TOKEN_PATTERN

    if not re.fullmatch(TOKEN_PATTERN, token):
        raise click.BadParameter(f"{token[:40]!r} is not an ack token", param_hint="TOKEN")
    api = make_api()
    found = api.ask("GET", f"/v1/acks/{token}").json()
    print_item(found, as_json=api.as_json)
