"""Names that outlive a power cut.

A file's own `fsync` makes its content durable, and not that it is called so.
"""

from __future__ import annotations

import os
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Make names that were made, changed or removed in it durable. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
