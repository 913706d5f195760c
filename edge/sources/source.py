"""The port of a source: something that brings readings until it is cancelled.

A source keeps nothing: it hands what it read to its `Intake`, which checks and counts, and waits or
drops by its policy when the queue is full. It ends when what it reads has ended. What it raises is
logged, and its `run` is called again later (`edgewake.edge.supervisor`), so it may keep what it
knows between two runs. What blocks it does in a `DaemonThread`. How it is configured and found:
`config` beside this file.
"""

from __future__ import annotations

from typing import Protocol

from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy


class Source(Protocol):
    """What the agent runs as one task each."""

    policy: Policy
    """What happens when the queue is full, where the configuration says nothing else."""

    async def run(self, intake: Intake) -> None:
        """Bring readings. Cancelled at the stop of the agent; what was put before is kept."""
