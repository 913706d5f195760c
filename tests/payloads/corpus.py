"""Messages of devices as their formats' documentation has them, and the readings that must come."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import orjson
from hypothesis import strategies as st

FOLDER: Final = Path(__file__).parent


def messages() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(FOLDER.glob("*/*.json")):
        for one in json.loads(file.read_text())["messages"]:
            yield file.parent.name.replace("_", "-"), one


def payload_of(message: dict[str, Any]) -> bytes:
    payload = message["payload"]
    return payload.encode() if isinstance(payload, str) else orjson.dumps(payload)


def broken(payload: bytes) -> st.SearchStrategy[bytes]:
    """What may become of a payload: its beginning, other bytes within it, or anything."""
    cut = st.integers(0, len(payload)).map(lambda at: payload[:at])
    torn = st.tuples(st.integers(0, len(payload)), st.binary(max_size=8)).map(
        lambda of: payload[: of[0]] + of[1] + payload[of[0] + len(of[1]) :]
    )
    return cut | torn | st.binary(max_size=60)
