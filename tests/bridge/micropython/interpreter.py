"""A real MicroPython: its Unix port, as a package for CPython 3.11 on x86-64."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Final

from tests import pinned

LOCK: Final = Path(__file__).with_name("lock.txt")
IS_MADE_FOR_US: Final = sys.version_info[:2] == (3, 11) and platform.machine() == "x86_64"


def ensured() -> Path:
    """The folder, filled where it is not there. Raises LocalError."""
    return pinned.ensured("micropython", LOCK)


def command(file: Path) -> list[str]:
    """What runs a program."""
    folder = ensured()
    program = str(folder / "bin" / "micropython")
    return ["env", f"PYTHONPATH={folder}", sys.executable, program, str(file)]
