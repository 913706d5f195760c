"""Reports of gpsd (its JSON protocol, TPV and SKY) to fields.

Pure. Everything else that it says gives no reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.frame import Scalar
from edgewake.protocol.json_text import parse

WATCH: Final = '?WATCH={"enable":true,"json":true}\n'
"""What a client says first."""
POSITION: Final[Mapping[str, str]] = {
    "lat": "position_lat", "lon": "position_lon", "altHAE": "altitude_m", "speed": "speed_m_s",
    "track": "course_deg", "climb": "climb_m_s",
    "mode": "fix_mode", "eph": "position_error_m",
}  # fmt: skip
"""Names of TPV → ours."""
SKY: Final[Mapping[str, str]] = {"nSat": "satellites", "uSat": "satellites_used", "hdop": "hdop"}
"""Names of SKY → ours."""


def fields_of(line: bytes) -> Mapping[str, Scalar] | None:
    """The fields of a report, `t` among them; None for a report without a reading.

    Raises Rejected.
    """
    try:
        body = parse(line)
    except orjson.JSONDecodeError as error:
        raise Rejected(RejectReason.JSON, f"not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Rejected(RejectReason.SHAPE, "expected an object")
    names = {"TPV": POSITION, "SKY": SKY}.get(str(body.get("class")))
    if names is None:
        return None
    found: dict[str, Any] = {
        ours: body[theirs] for theirs, ours in names.items() if body.get(theirs) is not None
    }
    if not found:
        return None
    if not all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in found.values()
    ):
        raise Rejected(RejectReason.FIELD_TYPE, "expected numbers")
    return {"report": str(body["class"]), **found, **_time(body)}


def _time(body: Mapping[str, Any]) -> Mapping[str, Scalar]:
    if not isinstance(body.get("time"), str):
        return {}
    try:
        said = datetime.fromisoformat(body["time"])
        return {"t": round((said if said.tzinfo else said.replace(tzinfo=UTC)).timestamp() * 1000)}
    except (ValueError, OverflowError) as error:
        raise Rejected(RejectReason.TIME, f"{body['time'][:40]!r} is not a time") from error
