"""Names in Sparkplug B. Light: configurations check them without Google's library."""

from __future__ import annotations


def checked_id(text: str) -> str:
    """A name of a host, group, node or device. Raises ValueError."""
    if not text or set(text) & set("/+#"):
        raise ValueError("expected a name without / + #")
    return text
