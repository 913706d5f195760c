"""Packages that tests run as programs of others, each in a folder of its own, by its lock file."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from edgewake.deploy.programs.jars import cache_root
from edgewake.protocol.errors import LocalError


def ensured(name: str, lock: Path) -> Path:
    """The folder, filled where it is not there. Raises LocalError."""
    stamp = hashlib.sha256(lock.read_bytes()).hexdigest()[:10]
    found = cache_root() / f"{name}-{stamp}"
    if not found.exists():
        found.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=found.parent) as folder:
            target = Path(folder) / "made"
            options = ["--quiet", "--require-hashes", "--target", str(target), "-r", str(lock)]
            done = subprocess.run(
                [sys.executable, "-m", "pip", "install", *options],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                raise LocalError(f"{name}: {done.stderr.strip()[-300:]}")
            target.rename(found)
    return found
