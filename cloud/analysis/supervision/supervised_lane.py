"""A lane as the main loop looks after it: over its starts and failures."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgewake.cloud.analysis.lanes.counters import Counters
from edgewake.cloud.analysis.lanes.failures import Trouble
from edgewake.cloud.analysis.lanes.lane import Lane
from edgewake.cloud.analysis.results.emitted_rows import EmittedRows
from edgewake.protocol.backoff import Backoff


@dataclass
class SupervisedLane:
    """A lane while it runs, and its failures."""

    backoff: Backoff
    lane: Lane | None = None
    counters: Counters = field(default_factory=Counters)
    emitted_rows: dict[str, EmittedRows] = field(default_factory=dict)
    trouble: Trouble = field(default_factory=Trouble)
    not_before_s: float = 0.0
    failed_by: str = ""
    """The failure that ended it, while it does not run."""
    is_held: bool = False
    """It is held: its state is being replaced (repair/rebuild.py)."""
