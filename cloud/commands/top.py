"""`edgewake top`: the system as it is now, drawn again and again, until Ctrl + C."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from edgewake.cloud.commands.common.api_client import OpsApi, api_options
from edgewake.cloud.commands.common.output import print_json
from edgewake.cloud.commands.common.problems import sentence
from edgewake.protocol.printable import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

ROWS_MAX: Final = 10
"""Rows of each table: what is busiest, or slowest, is what one looks for."""
PROBLEMS_MAX: Final = 8
"""Problems named; of more the number is said."""
Item = Mapping[str, Any]


@click.command()
@api_options
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(0.5, 60),
    default=2.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option("--once", is_flag=True, help="Draw once, and end.")
def top(make_api: Callable[[], OpsApi], every_s: float, once: bool) -> None:
    """Watch the system: what flows where, what is wrong, the slowest queries."""
    api = make_api()
    if once and api.as_json:
        print_json(look(api))
        return
    from rich.console import Console
    from rich.live import Live

    from edgewake.protocol.clock import SystemClock

    clock = SystemClock()
    if once:
        Console().print(drawn(look(api), clock.now_ms()))
        return
    with (
        contextlib.suppress(KeyboardInterrupt),  # Ctrl + C is how one leaves it
        Live(drawn(found := look(api), clock.now_ms()), screen=True, auto_refresh=False) as screen,
    ):
        while True:
            time.sleep(every_s)
            found = look_again(api, found)
            screen.update(drawn(found, clock.now_ms()), refresh=True)


def look_again(api: OpsApi, before: dict[str, Any]) -> dict[str, Any]:
    """What is shown next: where nobody answers, that, above what was seen last.

    Who watches a system wants to see that a part of it restarts, and the end of it.
    """
    try:
        return look(api)
    except click.ClickException as error:
        return {**before, "missing": error.message}


def look(api: OpsApi) -> dict[str, Any]:
    """What is shown. Raises ClickException where nobody answers, or refuses."""
    return {
        "overview": api.ask("GET", "/v1/overview").json(),
        "streams": busiest(list(api.items("/v1/streams"))),
        "queries": slowest(list(api.items("/v1/queries"))),
    }


def busiest(streams: Sequence[Item]) -> list[Item]:
    """Streams, the one with most readings a second first."""
    return sorted(streams, key=lambda one: (-(one["readings_per_s"] or 0), one["name"]))[:ROWS_MAX]


def slowest(queries: Sequence[Item]) -> list[Item]:
    """Queries, the one with most records not computed first."""
    return sorted(queries, key=lambda one: (-(one["lag"] or 0), one["name"]))[:ROWS_MAX]


def drawn(found: Mapping[str, Any], now_ms: int) -> RenderableType:
    """The screen."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    overview = found["overview"]
    problems = [printable(sentence(one)) for one in overview["problems"]]
    left = len(problems) - PROBLEMS_MAX
    lines = problems[:PROBLEMS_MAX] + ([f"… and {left} more"] if left > 0 else [])
    if "missing" in found:
        lines = [f"{found['missing']} This was seen before:", *lines]
    wrong = Text("\n".join(lines), style="red") if lines else Text("all is well", style="green")
    hops = _table("flow", ("hop", "a second", "delay", "there", "state"))
    for one in overview["hops"]:
        hops.add_row(*hop_row(one))
    facts = Table(show_header=False, box=None)
    for name, text in facts_of(overview):
        facts.add_row(name, text)
    streams = _table("streams", ("stream", "readings/s", "records/s"))
    for one in found["streams"]:
        rates = _number(one["readings_per_s"]), _number(one["records_per_s"])
        streams.add_row(printable(one["name"]), *rates)
    queries = _table("slowest queries", ("query", "not computed", "readings/s", "final", "state"))
    for one in found["queries"]:
        queries.add_row(
            printable(one["name"]),
            _number(one["lag"]),
            _number(one["readings_per_s"]),
            _behind(one["watermark"], now_ms),
            printable(one["state"]),
        )
    return Group(wrong, hops, facts, streams, queries)


COUNTED: Final = {
    "devices": "online",
    "bridge": "running",
    "sequencer": "running",
    "analysis": "queries",
    "access": "clients",
    "push": "leases",
}
"""Hop → what it counts."""


def hop_row(hop: Item) -> tuple[str, str, str, str, str]:
    """Name, rate, delay, what is there, and the state of a hop from devices to clients."""
    name = printable(hop["name"])
    behind = hop["behind"] or 0
    delay = "–" if hop["delay_s"] is None else f"{hop['delay_s']:,.1f} s"
    if hop["delay_s"] is None and behind > 0:  # nothing moves, so nobody knows how long it takes
        delay = f"{behind:,} wait"
    there = f"{hop['count']} {COUNTED.get(name, '')}".rstrip()
    return name, _number(hop["per_s"]), delay, there, printable(hop["state"])


def facts_of(overview: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What there is beside the way of a reading, a line each."""
    devices = ", ".join(f"{count} {state}" for state, count in overview["devices"].items())
    queries = ", ".join(f"{count} {state}" for state, count in overview["queries"].items())
    refused = sum(overview["dead_letters"].values())
    parts = ", ".join(
        f"{printable(one['part'])} {printable(one['state'])}" for one in overview["parts"]
    )
    return [
        ("devices", devices or "none"),
        ("streams", f"{overview['streams']}, {_number(overview['readings_per_s'])} readings/s"),
        ("refused", f"{refused} within an hour"),
        ("queries", queries or "none"),
        ("sleeping clients", str(overview["leases"])),
        ("parts", parts or "none has told of itself"),
    ]


def _table(title: str, columns: Sequence[str]) -> Any:
    from rich.table import Table

    table = Table(title=title, title_justify="left", expand=True)
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if place == 0 else "right")
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}".removesuffix(".0")


def _behind(watermark: int | None, now_ms: int) -> str:
    return "–" if watermark is None else f"{max(0, now_ms - watermark) // 1000:,} s behind"
