"""What a query's topic `ew.q.<query>.<n>` holds: results and watermarks, as JSON.

A result is flat: the query's SELECT columns by their names, beside

    {"query":"cpu_minute","window_start":1790000040000,"window_end":1790000100000,"device":"…","mean":0.42,"revision":17,"final":false}

`revision` counts the transactions that results are written in: it grows per key, and the highest
one is the truth. A row with `"complete":false` may lack readings: its window began before the query
was registered or resumed, or retention deleted some. A row with `"withdrawn":true` marks a result
that no longer qualifies: HAVING or LIMIT, or WHERE and JOIN of a table, let it through before. It
has its window and group columns, and no values. A *watermark* (key `watermark`) says up to when
every window is final; it follows the results it covers:

    {"query":"cpu_minute","watermark":1790000100000,"revision":18}

A window by count has its `window_number` in its group. Sessions and windows by count grow, so their
keys have 0 in place of the end.

Keys are deterministic: `watermark`, or of a result the window and the group columns, which begins
with `[`.
"""

from __future__ import annotations

from typing import Final

import orjson

WATERMARK_KEY: Final = b"watermark"


def is_watermark(key: bytes | None) -> bool:
    """Is a record with this key a watermark, and no result?"""
    return key == WATERMARK_KEY


def result_key(window_start: int, window_end: int, group: str) -> bytes:
    """Kafka key of a result: the same for every revision of the same window and group.

    `group`: its columns as a JSON object, sorted.
    """
    return f"{key_head(window_start, window_end)}{group}]".encode()


def key_head(window_start: int, window_end: int) -> str:
    """What keys of a window have before the group."""
    return f"[{window_start},{window_end},"


def watermark_value(query: str, watermark: int, revision: int) -> bytes:
    """Value of a watermark record."""
    return orjson.dumps({"query": query, "watermark": watermark, "revision": revision})
