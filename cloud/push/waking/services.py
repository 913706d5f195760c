"""What the proxy stands on."""

from __future__ import annotations

import random
from dataclasses import dataclass

from edgewake.cloud.calls import webhook
from edgewake.cloud.calls.sealing import Sealer
from edgewake.cloud.push.counting.watch import Watch
from edgewake.cloud.push.metrics import Metrics
from edgewake.cloud.rights.rights import Rights
from edgewake.protocol.clock import Clock


@dataclass(frozen=True, slots=True)
class Services:
    """Shared by all that serves the leases of a process."""

    watch: Watch
    """What leases have not seen."""
    caller: webhook.Caller
    """Their endpoints."""
    sealer: Sealer
    """Their secrets."""
    clock: Clock
    rng: random.Random
    """Jitter."""
    metrics: Metrics
    rights: Rights
    """Who may be woken for what."""
    session_timeout_s: float
    """Seconds after which a silent proxy's leases are given to another."""
