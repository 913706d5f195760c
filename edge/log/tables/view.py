"""Shows the waiting log, read-only, with sqlite-utils (imported only here: it costs 15 MB)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
from sqlite_utils import Database

from edgewake.edge.log.tables.schema import reading
from edgewake.protocol.errors import Rejected
from edgewake.protocol.frames.frame import encode
from edgewake.protocol.frames.frame_bytes import read


def rows(directory: Path, limit: int) -> Iterator[str]:
    """JSON lines: frames that wait for their acknowledgement, then batches that wait to be framed.

    What cannot be read is said in its place. Raises LocalError.
    """
    with reading(directory) as connection:
        db = Database(connection)
        names = {row["id"]: row["name"] for row in db["streams"].rows}
        found = [*db["frames"].rows_where(order_by="epoch, frame, stream", limit=limit)]
        found += db["batches"].rows_where(
            order_by="commit_number, stream, first", limit=max(0, limit - len(found))
        )
    for row in found:
        stream = row.pop("stream")
        yield orjson.dumps(
            {"stream": names.get(stream, stream)} | _readable(row), default=repr
        ).decode()


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    kind, name = ("batch", "body") if "body" in row else ("frame", "payload")
    said = row.pop(name)
    if said is None:
        return row | {"kind": kind}
    try:
        return row | {
            "kind": kind,
            name: orjson.loads(said if kind == "batch" else encode(read(said))),
        }
    except (ValueError, TypeError, Rejected) as error:
        return row | {"kind": kind, "damaged": str(error)}
