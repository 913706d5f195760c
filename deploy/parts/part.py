"""What the supervisor is told about a part. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from edgewake.protocol.heartbeat import SILENT_S


class Floor(IntEnum):
    """Where a part stands in the stream.

    Stopping goes down this list: sources first, so that what is on its way still arrives.
    """

    SOURCE = 0
    BRIDGE = 1
    SEQUENCER = 2
    ANALYSIS = 3
    SERVER = 4
    KAFKA = 5
    BROKER = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One process of the system."""

    name: str
    """Also the name of its log file, e.g. bridge-1."""
    command: tuple[str, ...]
    floor: Floor
    after: tuple[str, ...] = ()
    """Parts that must be ready before it is started the first time."""
    port: int | None = None
    """It is ready when this port of the loopback takes connections; None: when it logs the event
    part.ready."""
    stalled_s: float = 120.0
    """Seconds in which a start does nothing at all; then it is killed and counts as ended. How long
    a start takes has no bound."""
    stop_s: float = 5.0
    """Seconds it may take to end after SIGTERM; then SIGKILL."""
    silent_s: float = SILENT_S
    """Seconds without a sign of life after which it is killed and started again."""
    probe: bytes | None = None
    """A request that its port answers while it lives; None: it gives signs by itself, as
    `edgewake.protocol.heartbeat` does, and is judged from its first one on."""
    env: Mapping[str, str] = field(default_factory=dict)
