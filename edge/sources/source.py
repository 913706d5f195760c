"""The port of a source: something that brings readings until it is cancelled.

A source checks nothing and keeps nothing: it hands what it read to its `Intake`, which checks and counts, and it waits or goes on as its
`policy` says when the queue is full. It ends when what it reads has ended. What it raises is logged, and its `run` is called again later
(`edgewake.edge.supervisor`), so it may keep what it knows between two runs. What blocks it does in a `DaemonThread`.
"""

from __future__ import annotations

from typing import Protocol

from edgewake.edge.intake import Intake, Policy


class Source(Protocol):
    """What the agent runs as one task each."""

    policy: Policy
    """What happens when the queue is full."""

    async def run(self, intake: Intake) -> None:
        """Bring readings. Cancelled at the stop of the agent; what was put before is kept."""
