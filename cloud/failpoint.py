"""Named places where the process may die, for tests that show what survives it.

EDGEWAKE_FAILPOINT=name:n kills this process with SIGKILL the n-th time that `reach(name)` is
called, and name@file the first time that the file is there. Without the variable nothing happens.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

_reached: dict[str, int] = {}


def reach(name: str) -> None:
    """Die here, if that was asked for."""
    asked, _, file = os.environ.get("EDGEWAKE_FAILPOINT", "").partition("@")
    wanted, _, count = asked.partition(":")
    if wanted != name or (file and not Path(file).exists()):
        return
    _reached[name] = _reached.get(name, 0) + 1
    if _reached[name] == int(count or 1):
        os.kill(os.getpid(), signal.SIGKILL)
