"""`edgewake status`: how the whole system is, from what the operations API knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import click

from edgewake.cloud.commands.api_client import OpsApi, api_options
from edgewake.cloud.commands.output import print_items, print_json, tell

PART_COLUMNS: Final = ("part", "state", "uptime_s", "restarts", "cpu_percent", "rss_mib")
STREAM_COLUMNS: Final = ("name", "records_per_s", "description")
STREAMS_SHOWN: Final = 20
"""Streams in the table, the busiest first; `edgewake streams list` has all."""
LETTERS_LOOKED_AT: Final = 100
LETTER_AGE_MS: Final = 3_600_000
"""Dead letters of the last hour are a problem, older ones are history."""
PRESENCES: Final = ("online", "offline", "silent")
GOOD_QUERY_STATES: Final = frozenset({"running", "paused", "starting"})

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
    """Of the last hour by reason, among the newest LETTERS_LOOKED_AT."""


def problems_of(parts: Sequence[Item], queries: Sequence[Item], dead: Mapping[str, int], *, is_ready: bool) -> Iterator[str]:
    """What somebody should look at, each in one sentence."""
    if not is_ready:
        yield "the operations API is still reading its tables; what follows is incomplete"
    for part in parts:
        if part["state"] == "unknown":
            yield f"part {part['part']}: nothing was heard of it for more than 10 s"
        elif part["state"] != "ready":
            yield f"part {part['part']} is {part['state']}"
    for query in queries:
        if query["state"] not in GOOD_QUERY_STATES:
            yield f"query {query['name']} is {query['state']}: {query['detail']}"
        elif query["state"] == "starting" and query["detail"]:
            yield f"query {query['name']} is starting: {query['detail']}"
        elif query["apart"] and query["state"] == "running":
            yield f"query {query['name']} runs apart from the others, {query['detail']}"
    for reason, count in sorted(dead.items()):
        yield f"{count} messages were refused within the last hour ({reason}): edgewake dead-letters list --reason {reason}"


def dead_by_reason(letters: Sequence[Item], *, now_ms: int) -> Mapping[str, int]:
    """Letters of the last hour, counted."""
    return dict(Counter(letter["reason"] for letter in letters if now_ms - letter["received_at"] <= LETTER_AGE_MS))


def ask(api: OpsApi, *, now_ms: int) -> Status:
    """Ask the API; a refusal ends the command."""
    is_ready = api.is_ready()
    parts, queries = list(api.items("/v1/parts")), list(api.items("/v1/queries"))
    letters = api.ask("GET", "/v1/dead-letters", params={"limit": LETTERS_LOOKED_AT}).json()["items"]
    dead = dead_by_reason(letters, now_ms=now_ms)
    return Status(
        problems=list(problems_of(parts, queries, dead, is_ready=is_ready)),
        parts=parts,
        devices={state: api.ask("GET", "/v1/devices", params={"limit": 1, "state": state}).json()["total"] for state in PRESENCES},
        streams=sorted(api.items("/v1/streams"), key=lambda stream: -(stream["records_per_s"] or 0)),
        queries=queries,
        leases=api.ask("GET", "/v1/leases", params={"limit": 1}).json()["total"],
        dead_letters=dead,
    )


@click.command()
@api_options
def status(make_api: Callable[[], OpsApi]) -> None:
    """Show how the whole system is: parts, rates, devices, queries, and what needs attention.

    Exit code 1: something needs attention.
    """
    from edgewake.protocol.clock import SystemClock

    api = make_api()
    found = ask(api, now_ms=SystemClock().now_ms())
    if api.as_json:
        print_json(asdict(found))
    else:
        _print(found)
    raise SystemExit(1 if found.problems else 0)


def _print(found: Status) -> None:
    tell("\n".join(["needs attention:", *(f"  {problem}" for problem in found.problems)]) if found.problems else "all is well")
    print_items(found.parts, PART_COLUMNS, as_json=False)
    print_items(found.streams[:STREAMS_SHOWN], STREAM_COLUMNS, as_json=False)
    states = Counter(query["state"] for query in found.queries)
    tell(f"devices: {', '.join(f'{count} {state}' for state, count in found.devices.items())}")
    tell(f"queries: {', '.join(f'{count} {state}' for state, count in sorted(states.items())) or 'none'}")
    tell(f"leases: {found.leases}")
