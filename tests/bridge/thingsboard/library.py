"""ThingsBoard's own client library for Python, in a folder of its own: it brings another `paho`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tests import pinned

LOCK: Final = Path(__file__).with_name("client.txt")


def ensured() -> Path:
    """The folder, filled where it is not there. Raises LocalError."""
    return pinned.ensured("thingsboard-client", LOCK)


def environment() -> dict[str, str]:
    """For a process that uses it."""
    return os.environ | {"PYTHONPATH": str(ensured()), "PYTHONUNBUFFERED": "1"}
