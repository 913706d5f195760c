"""Logs wrong requests of a web server at a bounded rate per sentence: anybody can send them."""

from __future__ import annotations

import logging
from typing import Final

PER_S: Final = 10.0
"""Seconds in which the same warning is logged once; the next line says how many were left out."""
_LOGGER: Final = "uvicorn.error"


class Seldom(logging.Filter):
    """Lets each warning pass once in PER_S. Errors always pass: they are our own."""

    def __init__(self) -> None:
        super().__init__()
        self._passed_at: dict[str, float] = {}
        """By the text without its values: uvicorn has some ten."""
        self._left_out: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Is it logged?"""
        if record.levelno != logging.WARNING:
            return True
        text = str(record.msg)
        if record.created - self._passed_at.get(text, float("-inf")) < PER_S:
            self._left_out[text] = self._left_out.get(text, 0) + 1
            return False
        self._passed_at[text] = record.created
        left_out = self._left_out.pop(text, 0)
        if left_out:
            record.msg = f"{text} ({left_out} more of these were not logged)"
        return True


def bound_warnings() -> None:
    """Do so for uvicorn's, once in a process."""
    logger = logging.getLogger(_LOGGER)
    if not any(isinstance(one, Seldom) for one in logger.filters):
        logger.addFilter(Seldom())
