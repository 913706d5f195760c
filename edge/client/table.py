"""The latest events as a table on a terminal.

One stream: a column for each field that the width has room for, the device and the time first.
Several streams have different fields, so each row then begins with its stream and has its fields in
one column, `name=value`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from edgewake.protocol.printable import shortest

ROWS_MAX: Final = 200
COLUMNS_MAX: Final = 12
"""Columns shown; readings with more fields are better read as JSON lines."""
REFRESH_PER_S: Final = 8
CELL_MIN: Final = 6
CELL_MAX: Final = 24
"""Characters of a column. A column that would get less than CELL_MIN is not shown at all; a longer
value is cut with an ellipsis."""
_TIMES: Final = frozenset(
    {"t", "received_at", "event_time", "window_start", "window_end", "sent_at"}
)
_FIRST: Final = ("device", "t", "window_start", "window_end")
"""Columns that tell one row from another."""
_LAST: Final = ("stream", "query", "epoch", "seq", "received_at", "revision", "final")
"""Columns that are shown where there is room left."""
_FRAME: Final = 3
"""Characters that rich puts around a column."""


class LiveTable:
    """Shows the latest rows as long as it is entered; `add` and `show_state` change it."""

    def __init__(self, streams: Sequence[str], console: Console) -> None:
        self._streams = streams
        self._console = console
        self._state = "connecting"
        self._rows: deque[Mapping[str, Any]] = deque(maxlen=ROWS_MAX)
        self._count = 0
        self._live = Live(
            console=console,
            refresh_per_second=REFRESH_PER_S,
            get_renderable=self._render,
            transient=False,
        )

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def add(self, row: Mapping[str, Any]) -> None:
        """Show one more event."""
        self._count += 1
        self._rows.append(row)

    def show_state(self, state: str) -> None:
        """Show how the connection is."""
        self._state = state

    def _render(self) -> Group:
        """Render the table under a line with its state.

        A title would be as narrow as the table, and missing before the first row.
        """
        size = self._console.size
        rows = list(self._rows)[-max(1, size.height - 6) :]
        title = f"{', '.join(self._streams)} · {self._count} events · {self._state}"
        table = table_of(rows, width=size.width, several=len(self._streams) > 1)
        return Group(Text(title, style="italic", no_wrap=True, overflow="ellipsis"), table)


def table_of(rows: Sequence[Mapping[str, Any]], *, width: int, several: bool) -> Table:
    """Rows as a table of at most `width` characters."""
    if several:
        rows = [merged(row) for row in rows]
    table = Table()
    names = columns_of(rows, width)
    for name in names:
        table.add_column(
            Text(printable(name)),
            overflow="ellipsis",
            no_wrap=True,
            max_width=None if name == "fields" else CELL_MAX,
        )
    for row in rows:
        table.add_row(*(shown(name, row.get(name)) for name in names))
    return table


def merged(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of one of several streams: its stream, its identifying fields, the rest in one text."""
    first = {
        "stream": row.get("stream", row.get("query")),
        **{name: row[name] for name in _FIRST if name in row},
    }
    fields = " ".join(
        f"{name}={shown(name, value)}"
        for name, value in row.items()
        if name not in first and name not in _LAST
    )
    return first | {"fields": fields.replace("\\[", "[")}


def columns_of(rows: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    """The columns that fit into `width` characters, the most telling first.

    At least one and at most COLUMNS_MAX.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    own = [name for name in names if name not in _FIRST and name not in _LAST]
    is_merged = "fields" in names and "stream" in names
    lead = ["stream"] if is_merged else []
    ordered = [
        *lead,
        *(n for n in _FIRST if n in names),
        *own,
        *(n for n in _LAST if n in names and n not in lead),
    ]
    fitting: list[str] = []
    left = width - 1
    for name in ordered[:COLUMNS_MAX]:
        left -= (
            min(
                CELL_MAX,
                max(CELL_MIN, len(name), *(len(shown(name, row.get(name))) for row in rows)),
            )
            + _FRAME
        )
        if left < 0 and fitting and name != "fields":
            break
        fitting.append(name)
    return fitting


def shown(name: str, value: object) -> str:
    """A value for people: times as clock times, NULL empty, control characters escaped."""
    if value is None:
        return ""
    if (
        name in _TIMES
        and isinstance(value, int)
        and not isinstance(value, bool)
        and 0 <= value < 253_402_300_800_000
    ):
        return f"{datetime.fromtimestamp(value // 1000, UTC):%H:%M:%S}.{value % 1000:03d}"
    if isinstance(value, float):
        return shortest(value)
    return printable(str(value)).replace("[", "\\[")


def printable(text: str) -> str:
    """A text in one line that moves no terminal, even if a stranger wrote it."""
    return "".join(char if char.isprintable() else "�" for char in text)
