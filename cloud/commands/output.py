"""What commands print: items as a table for people or as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from edgewake.protocol.printable import printable

TIMES: Final = frozenset(
    {
        "watermark",
        "registered_at",
        "updated_at",
        "last_seen",
        "seen_at",
        "received_at",
        "created_at",
        "expires_at",
        "last_wake_at",
        "due_at",
        "start",
        "begin",
        "end",
        "done_to",
        "kept_from",
        "asked_at",
    }
)
"""Values in ms since 1970 UTC."""
WHOLE: Final = frozenset({"name", "device", "part", "id", "state", "check", "offset"})
"""Columns that are never cut or wrapped: they tell one row from another."""


def print_items(items: Sequence[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool) -> None:
    """A list: all values as JSON, or the columns as a table."""
    if as_json:
        return print_json(list(items))
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for name in columns:
        longest = max((len(cell(name, item.get(name))) for item in items), default=0)
        table.add_column(cell("", name).replace("[", "\\["), no_wrap=name in WHOLE, min_width=longest if name == columns[0] else None)
    for item in items:
        table.add_row(*(cell(name, item.get(name)).replace("[", "\\[") for name in columns))
    return Console().print(table)


def print_item(item: Mapping[str, Any], *, as_json: bool) -> None:
    """One item: a line for each value, and its text below."""
    if as_json:
        return print_json(item)
    from rich.console import Console
    from rich.syntax import Syntax
    from rich.table import Table

    console = Console()
    table = Table(show_header=False)
    for name, value in item.items():
        if name != "text":
            table.add_row(cell("", name).replace("[", "\\["), cell(name, value).replace("[", "\\["))
    console.print(table)
    if item.get("text"):
        console.print(Syntax(printable(item["text"], keep="\n\t"), "sql"))
    return None


def print_json(value: object) -> None:
    """Indented JSON."""
    import json

    click.echo(json.dumps(value, indent=1))


def tell(text: str, *, err: bool = False) -> None:
    """A sentence with words of a server in it."""
    click.echo(printable(text, keep="\n"), err=err)


def cell(name: str, value: object) -> str:
    """A value for people; what devices said is in it, so nothing that moves the cursor."""
    if value is None:
        return ""
    if name in TIMES and isinstance(value, int) and (moment := _moment(value)):
        return moment
    if isinstance(value, list | dict):
        return printable(", ".join(map(str, value)))
    return f"{value:.1f}" if isinstance(value, float) else printable(str(value), keep="\n")


def _moment(time_ms: int) -> str | None:
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        return None  # of a clock that was never set
