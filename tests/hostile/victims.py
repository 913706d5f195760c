"""What victims saw: of their answers' time, and of what became of their readings; a row of each.

`make hostile` prints the rows.
"""

from __future__ import annotations

import math
import os
import statistics
from dataclasses import dataclass

SLOWER_MAX = 2.0
"""An answer beside an attacker may take so many times as long as before: in the median, and of the
slow ones."""
HIGH_SHARE = 0.95
"""Answers that came within the time that stands for the slow ones."""
JITTER_S = 0.01
"""And so much longer, whatever it was, for each that waits for a processor of this machine: what
others that run beside add to an answer of five milliseconds, which passes six processes. Controls
are held to it once."""
HIGH_JITTER_S = 0.1
"""The same for the slow ones: one of twenty meets a full collection of Kafka's, or another test
that starts its services."""
QUEUED_S = 2.0
"""An answer takes longer where messages stand in a queue before it, and not otherwise."""


@dataclass(frozen=True)
class Seen:
    """How long each answer of a series took, in seconds."""

    latencies: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """Half of the answers took longer."""
        return statistics.median(self.latencies)

    @property
    def high_s(self) -> float:
        """One of twenty took longer; of fewer than twenty none did."""
        return sorted(self.latencies)[math.ceil(HIGH_SHARE * len(self.latencies)) - 1]

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.median_s * 1000:.0f} / {self.high_s * 1000:.0f} ms"


@dataclass(frozen=True)
class Count:
    """What became of a victim's readings."""

    lost: int = 0
    twice: int = 0
    wrong: int = 0


ROWS: list[tuple[str, ...]] = []
"""What was seen in this process."""
HEAD = ("attack", "victim", "before", "beside it", "lost", "twice", "wrong")


def note(victim: str, before: object, beside: object, count: Count | None = None) -> None:
    """Keep a row of the test that runs; times are median / one of twenty."""
    attack = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition("::")[2].partition(" (")[0]
    seen = [one.text if isinstance(one, Seen) else str(one) for one in (before, beside)]
    counted = (
        ["", "", ""] if count is None else [str(count.lost), str(count.twice), str(count.wrong)]
    )
    ROWS.append((attack.removeprefix("test_").replace("_", " "), victim, *seen, *counted))


def table() -> list[str]:
    """The rows as lines of Markdown."""
    rows = [HEAD, ("---",) * len(HEAD), *ROWS]
    return [f"| {' | '.join(row)} |" for row in rows]


def slower(before: Seen, beside: Seen, times: float = 1.0) -> str:
    """In what a victim's answers took too long; empty: in nothing.

    `times`: how many wait for each processor.
    """
    bounds = {
        "median": (before.median_s, beside.median_s, JITTER_S),
        "one of twenty": (before.high_s, beside.high_s, HIGH_JITTER_S),
    }
    return "; ".join(
        f"{name}: {was:.4f} s, then {now:.4f} s"
        for name, (was, now, jitter_s) in bounds.items()
        if now > SLOWER_MAX * was + times * jitter_s
    )


def times_of_this_machine() -> float:
    """How many wait for each processor now; at least 1."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
