"""The exact figures of each minute of a long time, from columns to rows of JSON.

No object is made for a minute.

Only where a minute is one row of the cloud's and no sketch is asked. Other minutes (late parts,
sketches of devices) are merged by gather, which gives the same rows three times as slowly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from edgewake.cloud.summaries.answers import figures
from edgewake.cloud.summaries.asking import Row
from edgewake.cloud.summaries.store import View
from edgewake.cloud.summaries.summary import MINUTE_MS, Series, Summary
from edgewake.protocol.errors import Rejected
from edgewake.protocol.sketches.sketch import Numbers

_EMPTY: Final = figures(Summary())
_REST: Final[Mapping[str, Any]] = Row(start=0, end=0, figures=_EMPTY).model_dump(
    exclude={"start", "end", "figures"}
)
"""What a row says of sketches when none is asked."""
_NO_NUMBERS: Final[Mapping[str, Any]] = _EMPTY.model_dump(exclude={"readings"})


def rows(view: View, series: Series, start_ms: int, end_ms: int) -> list[dict[str, Any]] | None:
    """Rows (asking.Row) as orjson writes them; None where gather must make them.

    orjson writes what is not finite as null.
    """
    found = view.plain_minutes(series, start_ms, end_ms)
    try:
        made = (
            None
            if found is None
            else Numbers.columns(b"".join(numbers for _, _, numbers in found), len(found))
        )
    except Rejected:  # gather says of which it is
        return None
    if found is None or made is None:
        return None
    return [
        {
            "start": start,
            "end": start + MINUTE_MS,
            "figures": {
                "readings": readings,
                "count": int(count),
                "sum": total,
                "min": least,
                "max": most,
                "mean": mean,
                "variance": squares / count if squares < math.inf else None,
            }
            if count
            else {"readings": readings, **_NO_NUMBERS},
            **_REST,
        }
        for (start, readings, _), (count, mean, squares, total, least, most) in zip(
            found, made, strict=True
        )
    ]
