"""Summaries as the analysis and devices make them, of values that a test knows."""

from __future__ import annotations

import random
from collections.abc import Sequence

import datasketches

from edgewake.cloud.summaries import sketches
from edgewake.cloud.summaries.summary import MINUTE_MS, Record, Series, Sketch, Summary
from edgewake.protocol.sketches.bloom import Bloom
from edgewake.protocol.sketches.count_min import CountMin
from edgewake.protocol.sketches.sample import Sample
from edgewake.protocol.sketches.sketch import Numbers, SketchKind, item_text

_draws = random.Random(1)
SERIES = Series("shop", "price")


def summary(values: Sequence[float | str], *, narrow: bool = False) -> Summary:
    """Of some values; `narrow`: as small as a device makes it."""
    texts = [item_text(value) for value in values]
    numbers = [float(value) for value in values if not isinstance(value, str)]
    hll = datasketches.hll_sketch(12 if narrow else 14, datasketches.tgt_hll_type.HLL_8)
    theta = datasketches.update_theta_sketch(9 if narrow else 16)
    top = datasketches.frequent_strings_sketch(6 if narrow else 10)
    kll = datasketches.kll_doubles_sketch(sketches.KLL_K)
    for text in texts:
        hll.update(text)
        theta.update(text)
        top.update(text)
    for number in numbers:
        kll.update(number)
    is_large = theta.num_retained > 1 << sketches.THETA_LOG2_ENTRIES
    found = {
        SketchKind.HLL: hll.serialize_compact(),
        SketchKind.THETA: sketches.small_theta(theta) if is_large else theta.compact().serialize(),
        SketchKind.TOP: top.serialize(),
        SketchKind.COUNT_MIN: CountMin.of(texts, width=256 if narrow else 1024).encode(),
        SketchKind.SAMPLE: Sample.of([(_draws.getrandbits(64), text) for text in texts]).encode(),
    } | ({SketchKind.KLL: kll.serialize()} if numbers else {})
    if is_large:
        found[SketchKind.BLOOM] = Bloom.of(filter(None, texts)).encode()
    return Summary(
        len(values),
        Numbers.of(numbers),
        {kind: Sketch(len(values), data) for kind, data in found.items()},
    )


def minute(start_ms: int, values: Sequence[float | str], series: Series = SERIES) -> Record:
    """A minute's record."""
    return Record(series, start_ms, start_ms + MINUTE_MS, summary(values))
