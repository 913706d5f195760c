"""Lets a server have as many connections as its own bounds say: each is an open file."""

from __future__ import annotations

import resource
from typing import Final

FILES_MAX: Final = 65_536
"""File descriptors asked for; the hard limit may allow fewer."""


def raise_file_limit() -> None:
    """Ask for FILES_MAX: a shell gives a thousand."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
