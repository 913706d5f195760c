"""The sketches of a summary as bytes: checking and merging them.

Apache DataSketches where there is a kind of theirs. Pure.

The library (and numpy) is loaded with the first sketch: 30 MB that a process without summaries does
not pay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.sketches.bloom import Bloom
from edgewake.protocol.sketches.count_min import CountMin
from edgewake.protocol.sketches.sample import Sample
from edgewake.protocol.sketches.sketch import SketchKind

if TYPE_CHECKING:
    import datasketches

HLL_LOG2_BUCKETS: Final = 14
"""The size of merged HLLs, as in the analysis: standard error 0.81 %; narrower ones of devices make
the result as narrow as they are."""
THETA_LOG2_ENTRIES: Final = 12
"""The size of merged theta sketches: exact up to 4096 different values, then a standard error of
1.6 %."""
KLL_K: Final = 200
"""The size of merged KLLs: rank error 1.3 %."""
TOP_LOG2_ITEMS: Final = 10
"""The size of merged frequent items: 768 are followed."""
LOG2_MAX: Final = 14
"""The largest size that is read from others: for HLL's buckets and for the map of frequent items,
which is allocated before it is filled."""
KLL_K_MAX: Final = 4096
"""The largest k that is read from others."""


def read(kind: SketchKind, data: bytes) -> Any:
    """The sketch in the bytes; raises Rejected."""
    try:
        return _READ[kind](data)
    except Rejected:
        raise
    except (
        ValueError,
        RuntimeError,
        IndexError,
        MemoryError,
        TypeError,
        UnicodeDecodeError,
    ) as error:
        raise Rejected(RejectReason.SHAPE, f"{kind}: {str(error)[:200]}") from error


def merge(kind: SketchKind, parts: Sequence[bytes]) -> bytes:
    """One sketch of all; raises Rejected where one cannot be read."""
    if len(parts) == 1:
        return parts[0]
    return _MERGE[kind]([read(kind, part) for part in parts])


def _library() -> Any:
    import datasketches

    return datasketches


def _check_head(data: bytes, family: int, least: int, bounds: Mapping[int, int]) -> None:
    """Check DataSketches' preamble: the family is its third byte.

    `bounds`: place of a byte → its largest value.
    """
    if len(data) < least or data[2] != family:
        raise Rejected(RejectReason.SHAPE, "not a sketch of this kind")
    for place, most in bounds.items():
        if data[place] > most:
            raise Rejected(
                RejectReason.SHAPE, f"byte {place} is {data[place]}: expected at most {most}"
            )


def read_hll(data: bytes) -> datasketches.hll_sketch:
    """Bytes of an HLL; raises Rejected and what the library raises."""
    _check_head(data, 7, 8, {3: LOG2_MAX})
    return _library().hll_sketch.deserialize(data)


def read_theta(data: bytes) -> datasketches.compact_theta_sketch:
    """Bytes of a compact theta sketch; raises Rejected and what the library raises."""
    _check_head(data, 3, 8, {})
    return _library().compact_theta_sketch.deserialize(data)


def exact_theta(data: bytes) -> datasketches.compact_theta_sketch | None:
    """A theta sketch that still holds all values, None of another; raises as read_theta."""
    found = read_theta(data)
    return None if found.is_estimation_mode() else found


def read_kll(data: bytes) -> datasketches.kll_doubles_sketch:
    """Bytes of a KLL of doubles; raises Rejected and what the library raises."""
    _check_head(data, 15, 8, {})
    if int.from_bytes(data[4:6], "little") > KLL_K_MAX:
        raise Rejected(RejectReason.SHAPE, f"kll: expected k of at most {KLL_K_MAX}")
    return _library().kll_doubles_sketch.deserialize(data)


def read_top(data: bytes) -> datasketches.frequent_strings_sketch:
    """Bytes of frequent strings; raises Rejected and what the library raises."""
    _check_head(data, 10, 8, {3: LOG2_MAX, 4: LOG2_MAX})
    return _library().frequent_strings_sketch.deserialize(data)


def all_texts(data: bytes) -> list[tuple[str, int]]:
    """The texts that a sketch of frequent strings follows, and their counts.

    While they are few, they are all of them, and exact.
    """
    top = read_top(data)
    kind = _library().frequent_items_error_type.NO_FALSE_NEGATIVES
    return [(text, lower) for text, _, lower, _ in top.get_frequent_items(kind)]


def _merge_hll(parts: Sequence[Any]) -> bytes:
    union = _library().hll_union(HLL_LOG2_BUCKETS)
    for part in parts:
        union.update(part)
    return bytes(union.get_result(_library().tgt_hll_type.HLL_8).serialize_compact())


def small_theta(theta: Any) -> bytes:
    """The bytes of a larger one, cut to THETA_LOG2_ENTRIES."""
    return _merge_theta([theta])


def _merge_theta(parts: Sequence[Any]) -> bytes:
    union = _library().theta_union(THETA_LOG2_ENTRIES)
    for part in parts:
        union.update(part)
    return bytes(union.get_result().serialize())


def _merge_kll(parts: Sequence[Any]) -> bytes:
    return bytes(_merge_into(_library().kll_doubles_sketch(KLL_K), parts).serialize())


def _merge_top(parts: Sequence[Any]) -> bytes:
    return bytes(_merge_into(_library().frequent_strings_sketch(TOP_LOG2_ITEMS), parts).serialize())


def _merge_into(whole: Any, parts: Sequence[Any]) -> Any:
    for part in parts:
        whole.merge(part)
    return whole


def _merge_count_min(parts: Sequence[Any]) -> bytes:
    return CountMin.merged(parts).encode()


def _merge_bloom(parts: Sequence[Any]) -> bytes:
    return Bloom.merged(parts).encode()


def _merge_sample(parts: Sequence[Any]) -> bytes:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.merge(part)
    return bytes(whole.encode())


_READ: Final[Mapping[SketchKind, Callable[[bytes], Any]]] = {
    SketchKind.HLL: read_hll,
    SketchKind.THETA: read_theta,
    SketchKind.KLL: read_kll,
    SketchKind.TOP: read_top,
    SketchKind.COUNT_MIN: CountMin.decode,
    SketchKind.BLOOM: Bloom.decode,
    SketchKind.SAMPLE: Sample.decode,
}
_MERGE: Final[Mapping[SketchKind, Callable[[Sequence[Any]], bytes]]] = {
    SketchKind.HLL: _merge_hll,
    SketchKind.THETA: _merge_theta,
    SketchKind.KLL: _merge_kll,
    SketchKind.TOP: _merge_top,
    SketchKind.COUNT_MIN: _merge_count_min,
    SketchKind.BLOOM: _merge_bloom,
    SketchKind.SAMPLE: _merge_sample,
}
KINDS: Final = tuple(_READ)
"""All but the exact figures, which are not a sketch."""
