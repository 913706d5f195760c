"""Checks sketches of devices byte by byte. Pure.

Apache DataSketches' own reader trusts its input, and crashes on wrong bytes.

Accepted are the forms that DataSketches of any language writes today: HLL as list, set or full
table of 8-bit buckets; theta compact and ordered; KLL of doubles; frequent strings. The layouts are
those of the preambles in DataSketches' documentation.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from itertools import accumulate, pairwise
from typing import Final

from edgewake.cloud.summaries import sketches
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.sketches import bloom
from edgewake.protocol.sketches.bloom import Bloom
from edgewake.protocol.sketches.sketch import BLOOM_BITS_MIN, Numbers, SketchKind

THETA_SEED_HASH: Final = 0x93CC
"""The hash of DataSketches' default seed 9001; sketches of other seeds do not merge."""
KLL_LEVELS_MAX: Final = 48
"""Enough for 2^53 readings."""
_THETA_MAX: Final = 2**63 - 1


def check(kind: SketchKind, data: bytes, readings: int) -> None:
    """Check that the bytes may be merged as a sketch of `readings`. Raises Rejected."""
    try:
        _CHECKS[kind](data, readings)
        if kind is not SketchKind.NUMBERS:
            sketches.read(kind, data)  # as whoever merges it will
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Rejected(
            RejectReason.SHAPE, f"{kind}: the bytes end too early or are not text"
        ) from error


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise Rejected(RejectReason.SHAPE, what)


def _hll(data: bytes, readings: int) -> None:
    ints, version, family, log2_k, log2_array, flags, count, mode = struct.unpack_from("<8B", data)
    _demand(
        (version, family) == (1, 7) and 4 <= log2_k <= sketches.LOG2_MAX,
        "hll: no sketch of lg k 4 to 14",
    )
    if mode & 3 == 2:
        _demand(
            (ints, count, log2_array, mode >> 2) == (10, 0, 0, 2) and not flags & ~0x38,
            "hll: expected a table of 8-bit buckets",
        )
        hip, low, high, zeros, exceptions = struct.unpack_from("<3d2I", data, 8)
        buckets = data[40:]
        _demand(
            len(buckets) == 1 << log2_k and max(buckets) < 64,
            "hll: expected 2^(lg k) buckets below 64",
        )
        _demand(
            exceptions == 0 and zeros == buckets.count(0),
            "hll: its counts are not those of its buckets",
        )
        sums = [
            math.fsum(2.0**-value for value in buckets if (value < 32) is below)
            for below in (True, False)
        ]
        _demand(
            math.isclose(low, sums[0]) and math.isclose(high, sums[1]) and 0 <= hip <= 2.0**53,
            "hll: its sums are not those of its buckets",
        )
        return
    start = 8
    if mode & 3 == 1:
        (count,), start = struct.unpack_from("<I", data, 8), 12
    _demand(
        (ints, mode & 3) in ((2, 0), (3, 1)) and mode < 12 and flags & ~0x3C == 0 and flags & 8 > 0,
        "hll: expected a compact list or set",
    )
    coupons = struct.unpack(f"<{len(data[start:]) // 4}I", data[start:])
    limit = 8 if mode & 3 == 0 else 3 << log2_k >> 5
    _demand(
        count == len(coupons) == len(set(coupons)) and count <= min(limit, readings),
        "hll: its count is not that of its coupons",
    )
    _demand(
        bool(flags & 4) == (count == 0) and log2_array <= log2_k,
        "hll: its flags are not those of its coupons",
    )
    _demand(all(0 < coupon >> 26 < 63 for coupon in coupons), "hll: a coupon without a value")


def _theta(data: bytes, readings: int) -> None:
    longs, version, family = struct.unpack_from("<3B", data)
    flags, seed = data[5], int.from_bytes(data[6:8], "little")
    _demand(
        (version, family) == (3, 3) and 1 <= longs <= 3 and flags & 0b1_1000 == 0b1_1000,
        "theta: expected a compact, ordered one",
    )
    _demand(seed == THETA_SEED_HASH, "theta: another seed than 9001")
    count, theta = (0 if flags & 4 else 1), _THETA_MAX
    if longs > 1:
        (count,) = struct.unpack_from("<I", data, 8)
    if longs > 2:
        (theta,) = struct.unpack_from("<Q", data, 16)
    entries = struct.unpack(f"<{(len(data) - 8 * longs) // 8}Q", data[8 * longs :])
    _demand(
        count == len(entries) <= readings and not (flags & 4 and (count or longs > 1)),
        "theta: its count is not that of its entries",
    )
    _demand(
        0 < theta <= _THETA_MAX and all(one < two for one, two in pairwise((0, *entries, theta))),
        "theta: its entries are not in order",
    )


def kll_capacity(k: int, m: int, levels: int) -> int:
    """The items that a KLL of `levels` has room for; the layout of its items follows from it."""

    def room(depth: int) -> int:
        if depth > 30:
            half = depth // 2
            return _thirds(_thirds(k, half), depth - half)
        return _thirds(k, depth)

    return sum(max(m, room(levels - level - 1)) for level in range(levels))


def _thirds(k: int, depth: int) -> int:
    """(2/3) ^ depth · k, rounded."""
    return int((((k << 1 << depth) // 3**depth) + 1) >> 1)


def _kll(data: bytes, readings: int) -> None:
    ints, version, family, flags, k, m, _ = struct.unpack_from("<4BHBB", data)
    _demand(
        family == 15 and m == 8 and 8 <= k <= sketches.KLL_K_MAX and flags < 8,
        "kll: no sketch of k 8 to 4096",
    )
    if flags & 1 or flags & 4:
        single = bool(flags & 4)
        _demand(
            (ints, version, len(data)) == (2, 1 + single, 8 + 8 * single)
            and readings == int(single),
            "kll: not empty or of one value",
        )
        _demand(
            not single or math.isfinite(struct.unpack_from("<d", data, 8)[0]),
            "kll: a value that is not a number",
        )
        return
    n, least_k, levels = struct.unpack_from("<QHB", data, 8)
    _demand(
        (ints, version) == (5, 1) and 1 <= levels <= KLL_LEVELS_MAX and 8 <= least_k <= k,
        "kll: no such form",
    )
    starts = struct.unpack_from(f"<{levels}I", data, 20)
    bounds = (*starts, kll_capacity(k, m, levels))
    sizes = [end - start for start, end in pairwise(bounds)]
    _demand(
        min(sizes) >= 0 and sum(size << level for level, size in enumerate(sizes)) == n == readings,
        "kll: its levels do not hold its readings",
    )
    low, high, *items = struct.unpack(f"<{2 + sum(sizes)}d", data[20 + 4 * levels :])
    _demand(
        all(low <= item <= high for item in items) and math.isfinite(low) and math.isfinite(high),
        "kll: an item outside min and max",
    )
    ends = list(accumulate(sizes))
    sorted_from = 0 if flags & 2 else 1
    for level in range(sorted_from, levels):
        part = items[ends[level] - sizes[level] : ends[level]]
        _demand(all(one <= two for one, two in pairwise(part)), "kll: a level is not in order")


def _top(data: bytes, readings: int) -> None:
    longs, version, family, log2_max, log2_now, flags = struct.unpack_from("<6B", data)
    _demand(
        (version, family) == (1, 10) and 3 <= log2_now <= log2_max <= sketches.LOG2_MAX,
        "top: no sketch of at most 2^14 items",
    )
    if flags & 5:
        _demand(longs == 1 and len(data) == 8 and readings == 0, "top: not empty")
        return
    count, _, total, offset = struct.unpack_from("<IIQQ", data, 8)
    _demand(
        longs == 4 and 0 < count <= 3 << log2_now >> 2 and total == readings,
        "top: its count is not that of its readings",
    )
    weights = struct.unpack_from(f"<{count}Q", data, 32)
    _demand(
        all(weights) and sum(weights) <= total and offset <= total,
        "top: its weights are more than its readings",
    )
    at, items = 32 + 8 * count, set()
    for _ in range(count):
        (size,) = struct.unpack_from("<I", data, at)
        items.add(data[at + 4 : at + 4 + size].decode())
        at += 4 + size
    _demand(
        len(items) == count and at == len(data), "top: an item twice, or bytes too many or too few"
    )


def _own(kind: SketchKind) -> Callable[[bytes, int], None]:
    def check_own(data: bytes, readings: int) -> None:
        _demand(
            sketches.read(kind, data).readings == readings,
            f"{kind}: another number of readings than was said",
        )

    return check_own


def _bloom(data: bytes, readings: int) -> None:
    found = Bloom.decode(data)
    _demand(
        found.bits >= BLOOM_BITS_MIN and found.one_in == bloom.ONE_IN,
        f"bloom: 2^{found.bits} places, an error of 1/{found.one_in}: expected 2^{BLOOM_BITS_MIN} "
        f"at least, and 1/{bloom.ONE_IN}",
    )
    _demand(len(found.places) <= readings, "bloom: more places than readings")


def _numbers(data: bytes, readings: int) -> None:
    _demand(Numbers.decode(data).count <= readings, "numbers: more than readings")


_CHECKS: Final[Mapping[SketchKind, Callable[[bytes, int], None]]] = {
    SketchKind.NUMBERS: _numbers,
    SketchKind.HLL: _hll,
    SketchKind.THETA: _theta,
    SketchKind.KLL: _kll,
    SketchKind.TOP: _top,
    SketchKind.COUNT_MIN: _own(SketchKind.COUNT_MIN),
    SketchKind.BLOOM: _bloom,
    SketchKind.SAMPLE: _own(SketchKind.SAMPLE),
}
