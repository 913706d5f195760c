"""A page as a table, for spreadsheets: RFC 4180, in UTF-8. Pure.

    t,device,speed_kmh,name
    1790000000000,car-7,51.2,'=1+1

The first row has the names of all fields that an event of the page has, in the order in which they
come; each event is a row, and each gap one whose column `$event` says so. What an event does not
have is empty; a list or an object is its JSON. Watermarks are left out.

A text that a spreadsheet would take for a formula has an apostrophe before it: what a device sends
is never executed where it is shown.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any, Final

import orjson

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""How a text begins that spreadsheets evaluate (OWASP, CSV injection)."""


def table_of(events: Iterable[bytes]) -> bytes:
    """The table of these JSON objects; empty where there is none."""
    rows = [row for row in map(orjson.loads, events) if row.get("$event") != "watermark"]
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not names:
        return b""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(map(_cell, names))
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return text.getvalue().encode()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return orjson.dumps(value).decode()
    return f"'{value}" if value.startswith(_FORMULA) else value
