"""How much a query may have open, of all its keys. Pure.

What is beyond the bounds is forgotten, the key without a reading for longest first: its next
reading begins new windows. So that nobody takes their rows for whole, rows of windows that begin as
early as forgotten ones say from then on that they may lack readings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from edgewake.cloud.analysis.folds import sequences
from edgewake.cloud.analysis.folds.sequences import KeyState

KEYS_MAX: Final = 200_000
"""Keys of a query, some 500 bytes each."""
BYTES_MAX: Final = 128 << 20
"""Characters of the keys, and bytes of what is written down of each: a group may be a text of a
million characters, and a window may count different values. In memory it is a few times as much."""


@dataclass
class OpenKeys:
    """A batch's look at the states of one query."""

    states: dict[str, KeyState]
    """Group (JSON) → what is open. The one touched longest ago is the first."""
    forgotten: set[str] = field(default_factory=set)
    lacks_before: int = 0
    """A time, ms, before which windows begin that were forgotten; 0: none was."""

    def record(self, key: str) -> bytes:
        """What is written down of a key."""
        text, lacks_before = sequences.record(self.states[key])
        self.lacks_before = max(self.lacks_before, lacks_before)
        return text

    def forget_beyond_count(self) -> None:
        """Forget the oldest keys beyond KEYS_MAX."""
        while len(self.states) > KEYS_MAX:
            self._forget_one()

    def forget_beyond_bytes(self) -> None:
        """Forget the oldest keys beyond BYTES_MAX of serialized state."""
        size = sum(len(key) + state.written for key, state in self.states.items())
        while size > BYTES_MAX:
            size -= self._forget_one()

    def _forget_one(self) -> int:
        key = next(iter(self.states))
        state = self.states.pop(key)
        self.forgotten.add(key)
        self.lacks_before = max(self.lacks_before, state.begins_before)
        return len(key) + state.written
