"""`edgewake status`: how the whole system is, from what the operations API knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import click

from edgewake.cloud.commands.common.api_client import OpsApi, api_options
from edgewake.cloud.commands.common.output import print_items, print_json, tell
from edgewake.cloud.commands.common.problems import sentence

PART_COLUMNS: Final = ("part", "state", "uptime_s", "restarts", "cpu_percent", "rss_mib")
STREAM_COLUMNS: Final = ("name", "readings_per_s", "records_per_s", "description")
STREAMS_SHOWN: Final = 20
"""Streams in the table, the busiest first; `edgewake streams list` has all."""

Item = Mapping[str, Any]


@dataclass(frozen=True)
class Status:
    """What was found; empty `problems` means that all is well."""

    problems: Sequence[str]
    parts: Sequence[Item]
    devices: Mapping[str, int]
    """Devices by presence."""
    streams: Sequence[Item]
    queries: Sequence[Item]
    leases: int
    dead_letters: Mapping[str, int]
    """Dead letters of the last hour by reason, among the newest hundred."""


def ask(api: OpsApi) -> Status:
    """Ask the API; a refusal ends the command."""
    overview = api.ask("GET", "/v1/overview").json()
    return Status(
        problems=[sentence(problem) for problem in overview["problems"]],
        parts=overview["parts"],
        devices=overview["devices"],
        streams=sorted(
            api.items("/v1/streams"), key=lambda stream: -(stream["readings_per_s"] or 0)
        ),
        queries=list(api.items("/v1/queries")),
        leases=overview["leases"],
        dead_letters=overview["dead_letters"],
    )


@click.command()
@api_options
def status(make_api: Callable[[], OpsApi]) -> None:
    """Show how the whole system is: parts, rates, devices, queries, and what needs attention.

    Exit code 1: something needs attention.
    """
    api = make_api()
    found = ask(api)
    if api.as_json:
        print_json(asdict(found))
    else:
        _print(found)
    raise SystemExit(1 if found.problems else 0)


def _print(found: Status) -> None:
    tell(
        "\n".join(["needs attention:", *(f"  {problem}" for problem in found.problems)])
        if found.problems
        else "all is well"
    )
    print_items(found.parts, PART_COLUMNS, as_json=False)
    print_items(found.streams[:STREAMS_SHOWN], STREAM_COLUMNS, as_json=False)
    states = Counter(query["state"] for query in found.queries)
    tell(f"devices: {', '.join(f'{count} {state}' for state, count in found.devices.items())}")
    tell(
        "queries: "
        f"{', '.join(f'{count} {state}' for state, count in sorted(states.items())) or 'none'}"
    )
    tell(f"leases: {found.leases}")
