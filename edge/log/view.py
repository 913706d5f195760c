"""A look into the waiting log, read-only, with sqlite-utils (imported here only: it costs 15 MB)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
from sqlite_utils import Database

from edgewake.edge.log.schema import reading
from edgewake.protocol.frame import encode
from edgewake.protocol.frame_bytes import read


def rows(directory: Path, limit: int) -> Iterator[str]:
    """JSON lines: frames that wait for their acknowledgement, then batches that wait to be framed. Raises LocalError."""
    with reading(directory) as connection:
        db = Database(connection)
        names = {row["id"]: row["name"] for row in db["streams"].rows}
        found = [*db["frames"].rows_where(order_by="epoch, frame, stream", limit=limit)]
        found += db["batches"].rows_where(order_by="commit_number, stream, first", limit=max(0, limit - len(found)))
    for row in found:
        yield orjson.dumps({"stream": names[row.pop("stream")]} | _readable(row)).decode()


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    if "body" in row:
        return row | {"kind": "batch", "body": orjson.loads(row["body"])}
    payload = row.pop("payload")
    if payload is None:
        return row | {"kind": "frame"}
    return row | {"kind": "frame", "payload": orjson.loads(encode(read(payload)))}
