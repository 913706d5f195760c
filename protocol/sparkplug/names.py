"""Checks names of Sparkplug B. Configurations use it, so it does not import protobuf."""

from __future__ import annotations


def checked_id(text: str) -> str:
    """Checks the name of a host, group, node or device. Raises ValueError."""
    if not text or set(text) & set("/+#"):
        raise ValueError("expected a name without / + #")
    return text
