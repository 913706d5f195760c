"""A sketch of each kind while it is filled.

Runs in the child process; Apache DataSketches is imported where a kind needs it.

Values come in the order of the log and are taken in blocks of one size, so the same readings give
the same bytes however they were cut. KLL is the exception: beyond a few hundred values it draws
lots, and its bytes differ within its bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, Final, Protocol

from edgewake.protocol.sketches.bloom import Bloom, hash_of
from edgewake.protocol.sketches.count_min import DEPTH, CountMin, places
from edgewake.protocol.sketches.sketch import (
    BLOOM_BITS_MIN,
    HLL_LOG2_BUCKETS,
    KLL_K,
    SKETCH_BYTES_MAX,
    TEXT_BYTES_MAX,
    THETA_LOG2_ENTRIES,
    Numbers,
    SketchKind,
    item_text,
)

BLOCK: Final = 256
"""Numbers that are summed up at once: exact figures depend on how they are grouped, in the last
digits."""
COUNT_MIN_WIDTH: Final = 256
"""Cells of a row: what a frame's text holds."""
BLOOM_SIZE_BITS_MAX: Final = (SKETCH_BYTES_MAX - 16) * 8
"""Bits of a Bloom filter at most: what a frame's text holds, less the numbers before them."""
TOP_LOG2: Final = 6
"""The size of frequent items: up to 48 values; fewer where they are long."""

Value = float | int | str | bool


class Filled(Protocol):
    """A sketch with its readings in it."""

    @property
    def readings(self) -> int:
        """How many values it has seen."""

    def add(self, values: Sequence[Value]) -> None:
        """Some more values, those that it cannot use among them."""

    def data(self) -> bytes:
        """Its bytes, at most SKETCH_BYTES_MAX."""


def numbers_of(values: Sequence[Value]) -> list[float]:
    """The values that are numbers."""
    return [float(value) for value in values if type(value) in (int, float)]


def texts_of(values: Sequence[Value]) -> list[str]:
    """Their texts, but for those that are too long."""
    texts = map(item_text, values)
    return [
        text
        for text in texts
        if len(text) * 4 <= TEXT_BYTES_MAX or len(text.encode()) <= TEXT_BYTES_MAX
    ]


class FilledNumbers:
    """Exact figures."""

    def __init__(self) -> None:
        self._whole = Numbers()
        self._block: list[float] = []

    @property
    def readings(self) -> int:
        return self._whole.count + len(self._block)

    def add(self, values: Sequence[Value]) -> None:
        self._block += numbers_of(values)
        while len(self._block) >= BLOCK:
            self._whole = self._whole.merge(Numbers.of(self._block[:BLOCK]))
            del self._block[:BLOCK]

    def data(self) -> bytes:
        return self._whole.merge(Numbers.of(self._block)).encode()


class FilledKll:
    """Quantiles."""

    def __init__(self) -> None:
        from datasketches import kll_doubles_sketch

        self._sketch = kll_doubles_sketch(KLL_K)
        self.readings = 0

    def add(self, values: Sequence[Value]) -> None:
        for number in numbers_of(values):
            self._sketch.update(number)
            self.readings += 1

    def data(self) -> bytes:
        return bytes(self._sketch.serialize())


class FilledTexts:
    """What is told each text: HLL, theta, frequent items."""

    def __init__(self, sketch: Any, data: Callable[[Any], bytes]) -> None:
        self._sketch = sketch
        self._data = data
        self.readings = 0

    def add(self, values: Sequence[Value]) -> None:
        for text in texts_of(values):
            self._sketch.update(text)
            self.readings += 1

    def data(self) -> bytes:
        return self._data(self._sketch)


class FilledCountMin:
    """A count-min sketch: how often each value occurred."""

    def __init__(self) -> None:
        self._cells = [0] * (DEPTH * COUNT_MIN_WIDTH)
        self.readings = 0

    def add(self, values: Sequence[Value]) -> None:
        texts = texts_of(values)
        self.readings += len(texts)
        for place in chain.from_iterable(
            map(places, texts, repeat(DEPTH), repeat(COUNT_MIN_WIDTH))
        ):
            self._cells[place] += 1

    def data(self) -> bytes:
        return CountMin(DEPTH, COUNT_MIN_WIDTH, self.readings, tuple(self._cells)).encode()


class FilledBloom:
    """Tells which values occurred.

    Values beyond the size of a frame's text are left out: it holds some 4,900.
    """

    def __init__(self) -> None:
        self._filter: Bloom | None = Bloom.of(())
        self._readings = 0

    @property
    def readings(self) -> int:
        """None where there are too many values."""
        return 0 if self._filter is None else self._readings

    def add(self, values: Sequence[Value]) -> None:
        texts = texts_of(values)
        self._readings += len(texts)
        if self._filter is None:
            return
        # As the cloud's sketches do, it leaves the empty text out.
        hashes = {hash_of(text) for text in texts if text}
        more = Bloom.merged([self._filter], hashes, size_bits_max=BLOOM_SIZE_BITS_MAX)
        self._filter = more if more.bits >= BLOOM_BITS_MIN else None

    def data(self) -> bytes:
        """Raises ValueError where there are too many values."""
        if self._filter is None:
            raise ValueError("more values than a frame's text holds")
        return self._filter.encode()


def _hll() -> Filled:
    from datasketches import hll_sketch, tgt_hll_type

    return FilledTexts(
        hll_sketch(HLL_LOG2_BUCKETS, tgt_hll_type.HLL_8),
        lambda sketch: bytes(sketch.serialize_compact()),
    )


def _theta() -> Filled:
    from datasketches import update_theta_sketch

    return FilledTexts(update_theta_sketch(THETA_LOG2_ENTRIES), _theta_data)


def _theta_data(sketch: Any) -> bytes:
    """Cut to its nominal size: while it is filled it holds almost twice as much."""
    sketch.trim()
    return bytes(sketch.compact().serialize())


def _top() -> Filled:
    from datasketches import frequent_strings_sketch

    return FilledTexts(frequent_strings_sketch(TOP_LOG2), _top_data)


def _top_data(sketch: Any) -> bytes:
    """Long texts do not all fit: a smaller sketch takes over what counts most."""
    from datasketches import frequent_strings_sketch

    data, log2 = bytes(sketch.serialize()), TOP_LOG2
    while len(data) > SKETCH_BYTES_MAX:
        log2 -= 1
        smaller = frequent_strings_sketch(log2)
        smaller.merge(sketch)
        data = bytes(smaller.serialize())
    return data


MAKERS: Final[Mapping[SketchKind, Callable[[], Filled]]] = {
    SketchKind.NUMBERS: FilledNumbers,
    SketchKind.HLL: _hll,
    SketchKind.THETA: _theta,
    SketchKind.KLL: FilledKll,
    SketchKind.TOP: _top,
    SketchKind.COUNT_MIN: FilledCountMin,
    SketchKind.BLOOM: FilledBloom,
}
"""Kind → an empty one."""
