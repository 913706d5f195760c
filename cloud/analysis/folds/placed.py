"""Where a reading lies in its stream, and the items that a row brings, as the driver gets them."""

from __future__ import annotations

from typing import Final

PLACE: Final = ("partition", "offset", "number")
"""The place of a reading in its stream, in rows that the driver gets."""


def item(text: str | None) -> frozenset[str]:
    """What a count of different values takes of one."""
    return frozenset() if text is None else frozenset((text,))
