"""Values of things by key, bounded, and found again by the block that a key begins with. Pure."""

from __future__ import annotations

from typing import Generic, TypeVar

from edgewake.cloud.sequencer.order.state_table import BLOCKS

V = TypeVar("V")


class ByBlock(Generic[V]):
    """At most `most` values, in the order in which they were put last; of more the first goes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[bytes, V] = {}
        self._keys: list[set[bytes]] = [set() for _ in range(BLOCKS)]

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: bytes) -> bool:
        return key in self._values

    def get(self, key: bytes) -> V | None:
        """What is under a key."""
        return self._values.get(key)

    def put(self, key: bytes, value: V) -> None:
        """Have a value under a key, as the newest."""
        self._values.pop(key, None)
        while len(self._values) >= self._most:
            self.drop(next(iter(self._values)))
        self._values[key] = value
        self._keys[key[0]].add(key)

    def drop(self, key: bytes) -> None:
        """Forget a key that is there."""
        del self._values[key]
        self._keys[key[0]].discard(key)

    def of(self, block: int) -> dict[bytes, V]:
        """The values of a block."""
        return {key: self._values[key] for key in self._keys[block]}
