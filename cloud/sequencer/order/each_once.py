"""Drops readings of numbered things that another gateway brought before. No I/O.

Frames of one gateway come once and in order without this (`ordered`); here are the few readings
that a thing sent to two gateways. A frame that holds some is passed on as the frames of the rest.
Such numbers stand in the field THING_SEQ; other records are not looked into.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import orjson

from edgewake.cloud.sequencer.order.arrival import Arrival, Output
from edgewake.cloud.sequencer.order.by_block import ByBlock
from edgewake.cloud.sequencer.order.changes import Changes
from edgewake.cloud.sequencer.order.own_numbers import OwnNumbers
from edgewake.cloud.sequencer.order.state_table import DIGEST_BYTES
from edgewake.protocol.names import THING_SEQ

_MARK: Final = f'"{THING_SEQ}":['.encode()


@lru_cache(maxsize=16_384)
def numbers_key(device: str, stream: str) -> bytes:
    """The key of a thing's numbers; its first byte is the block."""
    return blake2b(f"{device}\0{stream}\0own".encode(), digest_size=DIGEST_BYTES).digest()


class EachOnce:
    """The numbers of one partition's things."""

    def __init__(self, things_max: int, changes: Changes) -> None:
        """At most `things_max` pairs of thing and stream; the longest quiet one is dropped."""
        self._changes = changes
        self._known: ByBlock[OwnNumbers] = ByBlock(things_max)
        self.left_out = 0
        """Readings that had come by another gateway, or were sent twice."""

    def only_new(self, outputs: Iterable[Output]) -> list[Output]:
        """What of it has not come before."""
        found: list[Output] = []
        for one in outputs:
            if isinstance(one, Arrival) and (body := _numbered(one)) is not None:
                found += self._rest(one, body)
            else:
                found.append(one)
        return found

    def learn(self, arrivals: Iterable[Output]) -> None:
        """These were passed on before, and are read again."""
        for one in arrivals:
            if isinstance(one, Arrival) and (body := _numbered(one)) is not None:
                self._new(one, body)

    def _rest(self, arrival: Arrival, body: dict[str, Any]) -> Iterator[Arrival]:
        new = self._new(arrival, body)
        if all(new):
            yield arrival
            return
        self.left_out += len(new) - sum(new)
        for first, last in _runs(new):
            yield replace(arrival, value=_part(body, first, last))

    def _new(self, arrival: Arrival, body: dict[str, Any]) -> list[bool]:
        numbers = self._of(arrival)
        found = zip(body["fields"][THING_SEQ], body["t"], strict=True)
        return [numbers.is_new(number, t) for number, t in found]

    def _of(self, arrival: Arrival) -> OwnNumbers:
        key = numbers_key(arrival.device, arrival.stream)
        numbers = self._known.get(key) or OwnNumbers()
        self._known.put(key, numbers)
        self._changes.note(key[0], arrival.offset)
        return numbers

    def block(self, block: int) -> dict[bytes, bytes]:
        """What a block's row holds of it."""
        return {key: numbers.encode() for key, numbers in self._known.of(block).items()}

    def load(self, numbers: Mapping[bytes, bytes]) -> None:
        """From a row. Raises ValueError."""
        for key, encoded in numbers.items():
            self._known.put(key, OwnNumbers(encoded))


def _numbered(arrival: Arrival) -> dict[str, Any] | None:
    """The record of a thing that numbers its readings; None for any other."""
    if not arrival.placement.via or arrival.payload is None:
        return None
    value: bytes = arrival.payload.value()
    if _MARK not in value:
        return None
    body: dict[str, Any] = orjson.loads(value)
    if "gap" in body:
        return None  # whatever else its sender wrote beside
    return body if THING_SEQ in body.get("fields", ()) else None


def _runs(new: list[bool]) -> Iterator[tuple[int, int]]:
    """First and behind the last of each run that is new."""
    first = None
    for at, is_new in enumerate([*new, False]):
        if is_new and first is None:
            first = at
        elif not is_new and first is not None:
            yield first, at
            first = None


def _part(body: Mapping[str, Any], first: int, last: int) -> bytes:
    """The record with a part of its readings, under their own numbers."""
    seq = body["seq"]
    return orjson.dumps(
        {
            **body,
            "seq": None if seq is None else seq + first,
            "t": body["t"][first:last],
            "fields": {name: column[first:last] for name, column in body["fields"].items()},
        }
    )
