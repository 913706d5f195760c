"""What the plan measured of a batch (late.observe). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Observed:
    """What the plan measured of a batch (late.observe)."""

    frames: int
    readings: int
    oldest: int | None
    flagged: int
    tops: Mapping[int, int]
    received_at: Mapping[int, int]


def observed_in(row: Mapping[str, Any], partitions: int) -> Observed:
    """`row`: the metrics by name."""
    tops, received_at = (
        {i: row[f"{name}_{i}"] for i in range(partitions) if row.get(f"{name}_{i}") is not None}
        for name in ("top", "read")
    )
    return Observed(
        row["frames"],
        row.get("readings") or 0,
        row.get("oldest"),
        row["flagged"],
        tops,
        received_at,
    )
