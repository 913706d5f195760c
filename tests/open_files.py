"""The files that this process holds open in one folder.

A count over all folders would be that of every thread: one of them may open or close a file at any
moment, and the number of a closed file may be another's at once.
"""

from __future__ import annotations

import os
from pathlib import Path


def open_files(folder: Path) -> list[str]:
    """Returns the names of open files of `folder`, sorted; "." is the folder itself.

    One that was replaced or deleted since has " (deleted)" behind its name.
    """
    found = []
    for entry in os.scandir("/proc/self/fd"):
        try:
            target = Path(entry.path).readlink()
        except FileNotFoundError:
            continue
        if target == folder:
            found.append(".")
        elif target.parent == folder:
            found.append(target.name)
    return sorted(found)
