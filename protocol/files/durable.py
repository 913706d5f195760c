"""Makes names of files survive a power cut.

A file's own `fsync` makes its content durable, but not its name.
"""

from __future__ import annotations

import os
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Make additions, changes and removals in a folder durable. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
