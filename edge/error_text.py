"""An error's text in a form that can be kept, sent and shown. Pure.

Errors of foreign code may have any text, or fail to give one.
"""

from __future__ import annotations

from typing import Final

CHARS_MAX: Final = 1000
"""Characters that are kept. It goes into the status every few seconds, and some libraries put whole
documents into their errors."""


def error_text(error: BaseException) -> str:
    """Its kind and what it says, at most CHARS_MAX characters, all of which UTF-8 can carry."""
    kind = type(error).__name__
    try:
        text = f"{kind}: {error}"
    except Exception:  # it cannot even say what it is
        text = f"{kind}: it cannot be shown"
    shown = text if len(text) <= CHARS_MAX else text[: CHARS_MAX - 1] + "…"
    return shown.encode("utf-8", "backslashreplace").decode()[:CHARS_MAX]
