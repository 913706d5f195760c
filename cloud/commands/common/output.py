"""What commands print: items as a table for people or as JSON for programs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from edgewake.protocol.printable import printable, shortest

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
        "since",
        "at",
        "made_at",
        "changed_at",
        "until",
    }
)
"""Values in ms since 1970 UTC."""
WHOLE: Final = frozenset({"name", "device", "part", "id", "state", "check", "offset"})
"""Columns that are never cut or wrapped: they tell one row from another."""


def print_items(
    items: Sequence[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool
) -> None:
    """A list: all values as JSON, or the columns as a table."""
    if as_json:
        return print_json(list(items))
    from rich.console import Console
    from rich.table import Table

    table = Table()
    cells = [column_of(name, [item.get(name) for item in items]) for name in columns]
    for name, texts in zip(columns, cells, strict=True):
        longest = max(map(len, texts), default=0)
        # Half of a number on the next line would be read as another number.
        whole = name in WHOLE or are_numbers(name, [item.get(name) for item in items])
        table.add_column(
            cell("", name).replace("[", "\\["),
            no_wrap=whole,
            min_width=longest if name == columns[0] else None,
        )
    for row in zip(*cells, strict=True):
        table.add_row(*(text.replace("[", "\\[") for text in row))
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
    return shortest(value) if isinstance(value, float) else printable(str(value), keep="\n")


def column_of(name: str, values: Sequence[object]) -> list[str]:
    """The cells of a column: numbers with their points below one another."""
    texts = [cell(name, value) for value in values]
    if not are_numbers(name, values):
        return texts
    widest = max(map(_before_point, texts))
    return [" " * (widest - _before_point(text)) + text if text else "" for text in texts]


def are_numbers(name: str, values: Sequence[object]) -> bool:
    """Are they shown as numbers, all that are there?"""
    known = [value for value in values if value is not None]
    is_time = name in TIMES
    return (
        bool(known)
        and not is_time
        and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)
    )


def _before_point(number: str) -> int:
    """Characters before the point of a number, or before its exponent, or all."""
    return len(re.split("[.e]", number, maxsplit=1)[0])


def _moment(time_ms: int) -> str | None:
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        return None  # of a clock that was never set
