"""The queries that were being started when the analysis ended, kept on disk.

One that twice ended it is found at the next start.

A query is *proven* when a lane with it has run. Who was being started when the process died, and
was never proven, is a suspect; of those that were there twice the youngest is taken out, at each
start one, until the rest starts. A clean end suspects nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

DEATHS_MAX: Final = 2
"""Ends of the process while a query was being started, without a clean end or a run between, after
which it is taken out. One may be a power cut."""
WHY: Final = (
    "it kept the analysis from starting: twice the process ended while this query was planned, "
    "and it never ran before; it stays out"
    " until it is registered again, or paused and resumed; make it shorter"
)


@dataclass
class StartRecord:
    """`begun`, then `ran`; or `taken_out` after the process died between them.

    Labels stand for queries (Registration.label).
    """

    path: Path
    _proven: set[str] = field(default_factory=set)
    _begun: dict[str, int] = field(default_factory=dict)
    """Label → how often the process ended while it was being started."""

    def __post_init__(self) -> None:
        found = _read(self.path)
        self._proven, before = set(found.get("proven", ())), found.get("begun", {})
        self._died = {label: deaths + 1 for label, deaths in before.items()}
        self._begun = {}

    def taken_out(self) -> str | None:
        """The label of the query that is to stay out now. Once, before the first is begun."""
        suspects = [label for label, deaths in self._died.items() if deaths >= DEATHS_MAX]
        if not suspects:
            return None
        youngest: str = max(suspects, key=_registered_at)
        del self._died[youngest]
        self._write()
        return youngest

    def begun(self, labels: Iterable[str]) -> None:
        """Note that these queries are being planned from now on."""
        new = {
            label: self._died.get(label, 0)
            for label in labels
            if label not in self._proven and label not in self._begun
        }
        if new:
            self._begun |= new
            self._write()

    def ran(self, labels: Collection[str]) -> None:
        """Note that a lane with these queries runs."""
        if self._proven.issuperset(labels):
            return
        self._proven |= set(labels)
        for label in labels:
            self._begun.pop(label, None)
            self._died.pop(label, None)
        self._write()

    def keep(self, labels: Collection[str]) -> None:
        """Forget all others: they are registered no more."""
        if self._proven <= set(labels) and self._begun.keys() <= set(labels):
            return
        self._proven &= set(labels)
        self._begun = {label: deaths for label, deaths in self._begun.items() if label in labels}
        self._write()

    def end(self) -> None:
        """Note a clean end of the process: no query is suspected."""
        self._begun, self._died = {}, {}
        self._write()

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_bytes(orjson.dumps({"proven": sorted(self._proven), "begun": self._begun}))
        new.replace(self.path)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = orjson.loads(path.read_bytes())
    except (OSError, ValueError):  # none yet, or half of one: then nobody is suspected
        return {}
    return found if isinstance(found, dict) else {}


def _registered_at(label: str) -> tuple[int, str]:
    at = label.rpartition("@")[2]
    return (int(at) if at.isdigit() else 0), label
