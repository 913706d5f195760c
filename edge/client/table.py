"""The latest events as a table on a terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.table import Table

ROWS_MAX: Final = 200
COLUMNS_MAX: Final = 12
"""Columns shown; readings with more fields are better read as JSON lines."""
REFRESH_PER_S: Final = 8
_TIMES: Final = frozenset({"t", "received_at", "event_time", "window_start", "window_end", "sent_at"})


class LiveTable:
    """Shows the latest rows as long as it is entered; `add` and `say` change it."""

    def __init__(self, title: str, console: Console) -> None:
        self._title = title
        self._console = console
        self._state = "connecting"
        self._rows: deque[Mapping[str, Any]] = deque(maxlen=ROWS_MAX)
        self._columns: list[str] = []
        self._count = 0
        self._live = Live(console=console, refresh_per_second=REFRESH_PER_S, get_renderable=self._render, transient=False)

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def add(self, row: Mapping[str, Any]) -> None:
        """Show one more event."""
        self._count += 1
        self._rows.append(row)
        self._columns = columns_of(self._columns, row)

    def say(self, state: str) -> None:
        """Show how the connection is."""
        self._state = state

    def _render(self) -> Table:
        table = Table(title=f"{self._title} · {self._count} events · {self._state}", expand=True)
        for name in self._columns:
            table.add_column(name, overflow="ellipsis", no_wrap=True)
        fitting = max(1, self._console.size.height - 6)
        for row in list(self._rows)[-fitting:]:
            table.add_row(*(shown(name, row.get(name)) for name in self._columns))
        return table


def columns_of(known: Sequence[str], row: Mapping[str, Any]) -> list[str]:
    """The columns, in the order in which they were first seen; at most COLUMNS_MAX."""
    return list(dict.fromkeys([*known, *row]))[:COLUMNS_MAX]


def shown(name: str, value: object) -> str:
    """A value for people: times as clock times, floats short, NULL empty, control characters made visible."""
    if value is None:
        return ""
    if name in _TIMES and isinstance(value, int) and 0 <= value < 253_402_300_800_000:
        return datetime.fromtimestamp(value / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
    if isinstance(value, float):
        return f"{value:.6g}"
    return "".join(c if c.isprintable() else "�" for c in str(value)).replace("[", "\\[")
