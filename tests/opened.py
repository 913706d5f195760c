"""Closes what a test opened: from Python 3.13 on a database that is left open is a warning."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest


def closed_after(opened: type[Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close all objects of a class that are made until the test ends, by their `close`."""
    made: list[Any] = []
    init = opened.__init__

    @functools.wraps(init)
    def noted(self: Any, *args: Any, **named: Any) -> None:
        init(self, *args, **named)
        made.append(self)

    monkeypatch.setattr(opened, "__init__", noted)
    yield
    for one in made:
        one.close()
