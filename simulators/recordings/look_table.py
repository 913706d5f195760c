"""The look at a recording as a table for people; see `look`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgewake.simulators.recordings.look import Look
from edgewake.simulators.recordings.time_columns import How

SAMPLE_CHARS: Final = 32
COLUMNS_SHOWN: Final = 40


def show(found: Look, stream: str, console: Console) -> None:
    """Print it."""
    table = Table(title=f"{found.kind} → stream {stream}", title_justify="left")
    for heading in ("column", "becomes", "type", "filled", "for example"):
        table.add_column(
            heading, justify="right" if heading == "filled" else "left", overflow="fold"
        )
    good = max(1, found.rows - found.bad)
    for column in found.columns[:COLUMNS_SHOWN]:
        becomes = column.field
        if column.name in found.meaning.time_fields:
            becomes = "[cyan]time[/]"
        elif column.name == found.meaning.device_field:
            becomes = "[cyan]device[/]"
        table.add_row(
            escape(column.name),
            becomes,
            column.kind,
            f"{min(1.0, column.filled / good):.0%}",
            escape(_short(column.sample)),
        )
    console.print(table)
    if len(found.columns) > COLUMNS_SHOWN:
        console.print(f"and {len(found.columns) - COLUMNS_SHOWN} more columns")
    for line in lines(found):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    for guess in found.guesses:
        console.print(f"[yellow]guessed:[/] {escape(guess)}", highlight=False, soft_wrap=True)
    for hint in found.hints:
        console.print(f"[dim]hint: {escape(hint)}[/]", highlight=False, soft_wrap=True)


def lines(found: Look) -> list[str]:
    """What is said beside the table."""
    told = [f"time: {_time(found)}", f"devices: {_devices(found)}"]
    looked = f"looked at {'all' if found.is_whole else 'the first'} {found.rows} rows"
    told.append(f"{looked}; {found.bad} of them cannot be read" if found.bad else looked)
    told += [f"  line {bad.line}: {bad.reason}" for bad in found.first_bad]
    tally = found.tally
    if tally.bad_values:
        told.append(
            f"{tally.bad_values} values of {', '.join(sorted(tally.columns))} are no numbers: they "
            "stand beside, as …_odd"
        )
    if tally.repeated_headers:
        told.append(f"{tally.repeated_headers} lines name the columns once more: left out")
    if found.odd.twice:
        told.append(
            f"{found.odd.twice} times are of an hour that the zone has twice: the second one where "
            "time would run back"
        )
    if found.odd.never:
        told.append(
            f"{found.odd.never} times are of an hour that the zone leaves out: an hour later"
        )
    for name, made in list(found.odd.devices.items())[:3]:
        told.append(f"device {name!r} would be called like another one: {made}")
    return told


def _time(found: Look) -> str:
    time = found.time
    if time.how is How.NONE or not time.names:
        return "none; rows come one after the other (--every)"
    if time.is_elapsed:
        return f"{time.names[0]}, seconds since the beginning"
    span = ""
    if found.first_ms is not None and found.last_ms is not None:
        span = f", {_moment(found.first_ms)} to {_moment(found.last_ms)}"
    zone = found.meaning.zone.key
    return f"{' and '.join(time.names)} ({time.how}; {time.style}, zone {zone}){span}"


def _devices(found: Look) -> str:
    if found.meaning.device_field is None:
        return f"one, {found.meaning.device}"
    return f"{found.devices}, named by {found.meaning.device_field}"


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _short(text: str) -> str:
    return text if len(text) <= SAMPLE_CHARS else text[: SAMPLE_CHARS - 1] + "…"
