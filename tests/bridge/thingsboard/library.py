"""ThingsBoard's own client library for Python, in a folder of its own: it brings another `paho`."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from edgewake.deploy.programs.jars import cache_root
from edgewake.protocol.errors import LocalError

LOCK: Final = Path(__file__).with_name("client.txt")


def ensured() -> Path:
    """The folder, filled where it is not there. Raises LocalError."""
    stamp = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:10]
    found = cache_root() / f"thingsboard-client-{stamp}"
    if not found.exists():
        found.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=found.parent) as folder:
            target = Path(folder) / "made"
            options = ["--quiet", "--require-hashes", "--target", str(target), "-r", str(LOCK)]
            done = subprocess.run(
                [sys.executable, "-m", "pip", "install", *options],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                raise LocalError(f"ThingsBoard's client: {done.stderr.strip()[-300:]}")
            target.rename(found)
    return found


def environment() -> dict[str, str]:
    """For a process that uses it."""
    return os.environ | {"PYTHONPATH": str(ensured()), "PYTHONUNBUFFERED": "1"}
