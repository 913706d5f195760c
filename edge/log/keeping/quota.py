"""What the log gives up when it is full: quotas of the lanes and of the whole, and who yields.

Pure.

A lane has a quota of bytes and of age for what waits in it for its frame, and a policy for the
moment when the bytes are reached. The quota of the whole log also counts what is in frames; at that
one the lowest lane that yields goes first. What is given up stays as a counted gap in its place, so
the cloud is told of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from edgewake.edge.log.keeping.lanes import Lane

FULL: Final = "quota"
"""Reason of what was given up for bytes."""
TOO_OLD: Final = "age"
"""Reason of what was given up because it had waited for too long."""


class AtQuota(StrEnum):
    """What happens when a lane is full."""

    DROP_OLDEST = "drop_oldest"
    DROP_NEWEST = "drop_newest"
    THIN_OUT = "thin_out"
    STOP_SOURCE = "stop_source"


YIELDING: Final = frozenset({AtQuota.DROP_OLDEST, AtQuota.THIN_OUT})
"""Policies that give up what is kept; the others keep it and take no more."""


@dataclass(frozen=True, slots=True)
class LaneQuota:
    """Bounds of what waits in one lane; None: no bound of its own."""

    size: int | None = None
    age_s: float | None = None
    policy: AtQuota = AtQuota.DROP_OLDEST


@dataclass(frozen=True, slots=True)
class Quotas:
    """The quotas of one log.

    `waiting` is always bytes without a frame by lane, `total` all bytes that count.
    """

    total: int
    by_lane: Mapping[Lane, LaneQuota] = field(default_factory=dict)

    def of(self, lane: Lane) -> LaneQuota:
        """The quota of one lane."""
        return self.by_lane.get(lane, LaneQuota())

    def is_full(self, lane: Lane, waiting: Mapping[Lane, int], total: int) -> bool:
        """Has the lane reached its bound, or the log its own with no lane that yields?

        Only a lane that keeps its readings is ever full.
        """
        of = self.of(lane)
        if of.policy in YIELDING:
            return False
        return total > self.total or (of.size is not None and waiting.get(lane, 0) >= of.size)

    def stopped(self, waiting: Mapping[Lane, int], total: int) -> frozenset[Lane]:
        """Lanes whose sources must wait."""
        stopping = (lane for lane in Lane if self.of(lane).policy is AtQuota.STOP_SOURCE)
        return frozenset(lane for lane in stopping if self.is_full(lane, waiting, total))

    def dropping(self, waiting: Mapping[Lane, int], total: int) -> frozenset[Lane]:
        """Lanes that lose what comes next."""
        dropping = (lane for lane in Lane if self.of(lane).policy is AtQuota.DROP_NEWEST)
        return frozenset(lane for lane in dropping if self.is_full(lane, waiting, total))

    def excess(self, waiting: Mapping[Lane, int], total: int) -> tuple[Lane, int] | None:
        """Which lane must give up how many bytes now.

        None where all is within its bounds, or no lane yields.
        """
        yielding = [
            lane for lane in Lane if self.of(lane).policy in YIELDING and waiting.get(lane, 0) > 0
        ]
        for lane in yielding:
            size = self.of(lane).size
            if size is not None and waiting[lane] > size:
                return lane, waiting[lane] - size
        if total > self.total and yielding:
            return yielding[-1], min(total - self.total, waiting[yielding[-1]])
        return None


def in_lanes(by_stream: Mapping[str, int], lanes: Iterable[tuple[str, Lane]]) -> dict[Lane, int]:
    """Bytes by lane of bytes by stream."""
    found = dict.fromkeys(Lane, 0)
    for stream, lane in lanes:
        found[lane] += by_stream.get(stream, 0)
    return found


@dataclass(frozen=True, slots=True)
class Kept:
    """A batch that waits for its frame: its positions, and the bytes that it counts for."""

    first: int
    count: int
    size: int


@dataclass(frozen=True, slots=True)
class Thinning:
    """The progress of thinning out a backlog.

    The whole of it is passed through, again and again with longer holes, so it becomes evenly thin.
    """

    stands_at: int = 0
    """First position of the batch that is kept and where the pass goes on."""
    hole_max: int = 1
    """Readings that a hole of this pass may have."""

    def go_on(self, kept: Iterable[Kept], size: int) -> tuple[list[Kept], Thinning]:
        """Choose the batches, from `stands_at` on, that are given up for `size` bytes.

        It also returns where the next call continues.

        Neither the first nor the last ever goes. Where the pass came to the end, the next one
        begins with the oldest and longer holes.
        """
        gone: list[Kept] = []
        before: Kept | None = None
        candidate: Kept | None = None
        freed = 0
        for batch in kept:
            if before is not None and candidate is not None:
                if batch.first - (before.first + before.count) <= self.hole_max:
                    gone.append(candidate)
                    freed += candidate.size
                else:
                    before = candidate
                if freed >= size:
                    return gone, replace(self, stands_at=before.first)
            before, candidate = before or batch, batch if before is not None else None
        return gone, Thinning(0, 2 * self.hole_max)
