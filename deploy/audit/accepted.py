"""What was looked at and accepted: accepted.toml, checked."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from edgewake.protocol.config import Config, load

FILE: Final = Path(__file__).with_name("accepted.toml")
Reason = Annotated[str, Field(min_length=20)]
"""A sentence that somebody else can judge."""


class Licence(Config):
    """A component with an accepted licence.

    It states none itself, or not by a name of SPDX, or its licence is accepted for it alone.
    """

    component: str
    licence: str
    reason: Reason


class Advisory(Config):
    """An advisory that does not hurt us, until a day on which somebody looks again."""

    id: str
    component: str
    reason: Reason
    until: date


class Accepted(Config):
    """The file."""

    licences: tuple[str, ...]
    """SPDX names that any component may have."""
    licence: tuple[Licence, ...] = ()
    advisory: tuple[Advisory, ...] = ()


def read(path: Path = FILE) -> Accepted:
    """Raises ConfigError, which names the entry that is wrong."""
    return load(Accepted, path)
