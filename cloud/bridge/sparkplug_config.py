"""[sparkplug] of bridge.toml: edge nodes that publish Sparkplug B to the broker themselves."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from edgewake.protocol.config import Config
from edgewake.protocol.sparkplug.names import checked_id


class SparkplugConfig(Config):
    """A host application of Sparkplug B 3.0 (docs/devices/sparkplug.md).

    All bridges of a broker have the same: the first of them by name is the host, another one when
    it is gone.
    """

    host_id: Annotated[str, AfterValidator(checked_id)] | None = None
    """What it calls itself: nodes whose primary host has this name wait while it is away. None: no
    host application."""
    group: Annotated[str, AfterValidator(checked_id)] | None = None
    """Group that is heard; none: all."""
    stream: str = Field(default="sparkplug", pattern=r"^[a-z][a-z0-9_]{0,63}$")
    """Stream of all that they measure."""
    reorder_s: float = Field(default=2.0, ge=0, le=60)
    """Seconds that a message waits for one before it; then the node is asked for its births."""
    prefix: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,31})?$")
    """Begins the names of nodes and devices (`GROUP.NODE.DEVICE`), as `maps.prefix` does."""
