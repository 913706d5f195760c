"""Rules and looks with defaults. Times are seconds after T0."""

from __future__ import annotations

from typing import Any

from edgewake.cloud.alerts.life import Seen
from edgewake.protocol.ops.alert import Rule

T0 = 1_790_000_000_000


def at(seconds: float) -> int:
    return T0 + round(seconds * 1000)


def rule(**more: Any) -> Rule:
    if not {"query", "silent_s", "problems", "stream"} & set(more):
        more["stream"] = "kitchen"
    if "silent_s" not in more and "problems" not in more:
        more.setdefault("when", "temperature > 30")
    return Rule.model_validate(
        {"name": "hot", "version": 1, "changed_at": T0, "changed_by": "me", **more}
    )


def seen(seconds: float, holds: bool | None, key: str = "car-1", **more: Any) -> Seen:
    return Seen(key, at(seconds), holds, **more)
