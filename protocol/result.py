"""What a query's topic `ew.q.<query>.<n>` holds: results and watermarks, as JSON.

A result is flat: the query's SELECT columns by their names, beside

    {"query":"cpu_minute","window_start":1790000040000,"window_end":1790000100000,"device":"…","mean":0.42,"revision":17,"final":false}

`revision` counts the transactions that results are written in: it grows per key, and the highest one is the truth.
A row with `"complete":false` may lack readings: its window began before the query was registered or resumed, or retention took some.
A *watermark* (header kind=watermark) says up to when every window is final; it follows the results it covers:

    {"query":"cpu_minute","watermark":1790000100000,"revision":18}

Keys are deterministic: RESULT_KEY of window and group columns, or b"watermark". Header KIND_HEADER tells the two apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson

from edgewake.protocol.frame import Scalar

KIND_HEADER: Final = "kind"
KIND_RESULT: Final = b"result"
KIND_WATERMARK: Final = b"watermark"
WATERMARK_KEY: Final = b"watermark"


def result_key(window_start: int | None, window_end: int | None, group: Mapping[str, Scalar]) -> bytes:
    """Kafka key of a result: the same for every revision of the same window and group."""
    return orjson.dumps([window_start, window_end, dict(group)], option=orjson.OPT_SORT_KEYS)


def watermark_value(query: str, watermark: int, revision: int) -> bytes:
    """Value of a watermark record."""
    return orjson.dumps({"query": query, "watermark": watermark, "revision": revision})
