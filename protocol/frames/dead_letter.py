"""Dead letters: what was refused, kept byte for byte with its reason and origin.

On `ew.dead` the value is the payload exactly as it came, or of a device that used up its share the
beginning of it (`size`). The key is the device (empty where unknown), and the headers are the
fields of DeadLetter, ASCII or UTF-8 text. So a letter can be read with any tool, mended and sent
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import BaseModel, ConfigDict

from edgewake.protocol.errors import RejectReason


class DeadLetter(BaseModel):
    """The reason and origin of a refused message."""

    model_config = ConfigDict(frozen=True)

    reason: str
    """A RejectReason."""
    detail: str
    """The fault, its place, and what was expected."""
    topic: str
    """The MQTT topic it came on."""
    part: str
    """Name of the part that refused it."""
    received_at: int
    """Its wall clock, ms since 1970 UTC."""
    content_type: str = ""
    size: int = 0
    """Size of the whole message, bytes, where the value is only its beginning; otherwise 0."""

    def headers(self) -> list[tuple[str, bytes]]:
        """The letter's facts as Kafka headers."""
        return [(name, str(value).encode("utf-8", "replace")) for name, value in self]

    @classmethod
    def from_headers(cls, headers: Iterable[tuple[str, bytes | None]]) -> DeadLetter:
        """Read Kafka headers; unknown ones are left out. Raises pydantic.ValidationError."""
        known: Mapping[str, str] = {
            name: (value or b"").decode("utf-8", "replace")
            for name, value in headers
            if name in cls.model_fields
        }
        return cls.model_validate(known)


def known_reason(reason: str) -> str:
    """A reason of the closed list, for headers and labels; `unknown` for anything else."""
    return reason if reason in set[str](RejectReason) else "unknown"
