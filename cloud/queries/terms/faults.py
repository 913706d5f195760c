"""Collects the faults of a query file: a reader goes on after a fault, to report all of them.

Each has its place.

Where an expression is refused its reader goes on with a NULL of unknown type, which fits everywhere
and so causes no second fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from sqlglot import exp

from edgewake.protocol.errors import QueryError, QueryFault

FAULTS_MAX: Final = 20
"""Faults told of one file; the rest is counted. Who sends 200 wrong names needs no 200
sentences."""


class UnknownStream(QueryError):
    """The stream is not in the catalogue (yet)."""


def place_of(text: str, offset: int) -> tuple[int, int]:
    """Line and column of a character of the text, both from 1."""
    before = text[:offset]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


class Faults:
    """The faults of one query file, in the order of their places."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: list[QueryFault] = []
        self._is_only_unknown_stream = True

    @contextmanager
    def within(self, node: exp.Expr | None = None) -> Iterator[None]:
        """Keep a QueryError of the block; one that has no place yet gets the place of `node`."""
        try:
            yield
        except QueryError as error:
            self.add(error, node)

    def add(self, error: QueryError, node: exp.Expr | None = None) -> None:
        """Keep an error, at the place of `node` where it has none."""
        self._is_only_unknown_stream = self._is_only_unknown_stream and isinstance(
            error, UnknownStream
        )
        for fault in error.faults:
            located = (
                fault if fault.line is not None or node is None else self._located(fault, node)
            )
            if located not in self._found:
                self._found.append(located)

    def __len__(self) -> int:
        return len(self._found)

    def error(self) -> QueryError:
        """All of them as one error: UnknownStream where that is all."""
        ordered = sorted(self._found, key=lambda fault: (fault.line or 0, fault.column or 0))
        told, more = ordered[:FAULTS_MAX], len(ordered) - FAULTS_MAX
        kind = UnknownStream if self._is_only_unknown_stream else QueryError
        return kind(*told, *([QueryFault(f"and {more} more")] if more > 0 else []))

    def check(self) -> None:
        """Raise them, if there are any."""
        if self._found:
            raise self.error()

    def _located(self, fault: QueryFault, node: exp.Expr) -> QueryFault:
        starts = [int(part.meta["start"]) for part in node.walk() if "start" in part.meta]
        if not starts:
            return fault
        line, column = place_of(self._text, min(starts))
        return replace(fault, line=line, column=column)
