"""The keys under `traces` in the configuration of a part: where its spans go, and how many."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Self

from pydantic import Field, model_validator

from edgewake.protocol.config import Config

QUEUE_SPANS: Final = 2048
"""Spans that wait for the collector, some 4 KB each; at the bound new ones are dropped and
counted."""


class TracesConfig(Config):
    """Traces of single readings, by OTLP; none without `endpoint`.

    They need the extra `traces` (`pip install 'edgewake[traces]'`).
    """

    endpoint: str | None = Field(default=None, pattern=r"^https?://[^\s]+$")
    """Where an OpenTelemetry collector takes OTLP by HTTP, without the path of a signal, e.g.
    "http://127.0.0.1:4318". None: this part makes no spans."""
    headers_file: Path | None = None
    """File with lines `Name: value` that are sent along, mode 0600, e.g. `Authorization: Bearer
    …`; read at the start."""
    ca_file: Path | None = None
    """PEM of the authority that signed the collector's certificate; none: the system's."""

    @model_validator(mode="after")
    def _needs_an_endpoint(self) -> Self:
        if self.endpoint is None and (self.headers_file or self.ca_file):
            raise ValueError(
                'endpoint is missing: expected the address of a collector, e.g. "http://127.0.0.1:'
                '4318", with headers_file or ca_file'
            )
        return self


class SampledConfig(TracesConfig):
    """Traces of single readings, by OTLP, and which; none without `endpoint`.

    A bridge decides which messages are traced; the other parts trace what it began.
    """

    ratio: float = Field(default=0.0, ge=0, le=1)
    """Share of the messages without a `traceparent` for which the bridge begins a trace: 0.001 is
    one in a thousand."""
    asked_per_min: float = Field(default=60, ge=0, le=60_000)
    """Messages in a minute that one device may have traced by its own `traceparent`; of what is
    over the trace ends at the device, and the message passes as any other."""
