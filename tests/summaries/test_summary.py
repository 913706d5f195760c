"""A summary: merged in any order and grouping it says the same, within its bounds; foreign bytes
are refused by name.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import chain

import datasketches
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.summaries import answers, foreign
from edgewake.cloud.summaries.answers import Operation
from edgewake.cloud.summaries.summary import Record, Step, Summary, merged
from edgewake.protocol.errors import Rejected
from edgewake.protocol.sketches.sketch import Numbers, SketchKind
from tests.examples import examples
from tests.summaries.made import SERIES, minute, summary

T0 = 1_790_000_040_000
parts = st.lists(st.lists(st.integers(0, 50).map(float), max_size=10), min_size=1, max_size=6)
"""At most 60 values: a sample holds 64."""


@settings(max_examples=examples(50), deadline=None)
@given(parts, st.randoms(use_true_random=False))
def test_small_summaries_are_exact_in_any_order_and_grouping(
    lists: list[list[float]], rng: random.Random
) -> None:
    shuffled = list(lists)
    rng.shuffle(shuffled)
    cut = rng.randrange(len(lists) + 1)
    one = merged([merged(map(summary, shuffled[:cut])), merged(map(summary, shuffled[cut:]))])
    values = sorted(chain.from_iterable(lists))
    figures = answers.figures(one)
    assert (figures.readings, figures.count) == (len(values), len(values))
    if not values:
        return
    assert figures.sum == pytest.approx(sum(values))
    distinct = answers.distinct(one)
    assert distinct is not None
    assert (distinct.value, distinct.low, distinct.high, distinct.confidence) == (
        len(set(values)),
    ) * 3 + (1.0,)
    (median,) = answers.quantiles(one, [0.5])
    assert (median.value, median.confidence) == (values[max(0, -(-len(values) // 2) - 1)], 1.0)
    assert {item.text: item.value for item in answers.frequent(one, 100)} == Counter(
        str(int(value)) for value in values
    )
    assert Counter(answers.sample(one, 100)) == Counter(str(int(value)) for value in values)


def test_large_summaries_keep_their_bounds() -> None:
    rng = random.Random(5)
    lists = [[round(rng.lognormvariate(3, 1), 2) for _ in range(2_000)] for _ in range(8)]
    one, values = merged(map(summary, lists)), sorted(chain.from_iterable(lists))
    distinct = answers.distinct(one)
    assert distinct is not None
    assert distinct.low <= len(set(values)) <= distinct.high
    assert distinct.high / distinct.low < 1.05
    for quantile in answers.quantiles(one, [0.01, 0.5, 0.99]):
        assert quantile.low <= values[int(quantile.rank * len(values))] <= quantile.high
    between = answers.between(one, 10, 30)
    assert between is not None
    assert between.low <= sum(10 <= value < 30 for value in values) <= between.high
    exact = Counter(f"{value:.12g}" for value in values)
    for text, count in exact.most_common(20):
        found = answers.occurrences(one, text)
        assert found is not None
        assert found.low <= count <= found.high
    assert all(item.low <= exact[item.text] <= item.high for item in answers.frequent(one, 20))
    (absent,) = answers.presence(merged([summary(["a", "b"])]), ["c"])
    assert absent.value is False


def test_sets_are_compared() -> None:
    one, two = summary([f"v{i}" for i in range(300)]), summary([f"v{i}" for i in range(200, 600)])
    found = {operation: answers.set_operation(operation, one, two) for operation in Operation}
    assert {operation: one.value for operation, one in found.items() if one} == {
        Operation.UNION: 600,
        Operation.INTERSECTION: 100,
        Operation.DIFFERENCE: 200,
    }
    product = answers.inner_product(one, two)
    assert product is not None
    assert product.low <= 100 <= product.high


def test_what_a_device_made_and_the_cloud_made_are_one() -> None:
    rng = random.Random(3)
    lists = [[rng.randrange(3_000) / 8 for _ in range(2_000)] for _ in range(4)]
    one = merged([summary(values, narrow=i % 2 == 0) for i, values in enumerate(lists)])
    values = sorted(chain.from_iterable(lists))
    distinct, (median,) = answers.distinct(one), answers.quantiles(one, [0.5])
    assert distinct is not None
    assert distinct.low <= len(set(values)) <= distinct.high
    assert median.low <= values[len(values) // 2] <= median.high
    assert answers.figures(one).mean == pytest.approx(sum(values) / len(values))


def test_a_record_survives_the_topic() -> None:
    record = minute(T0, [1.5, 2.5, 2.5, 7.0])
    assert Record.decode(record.encode()) == record
    texts = minute(T0, ["a", "b"])
    assert Record.decode(texts.encode()) == texts


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"stream":1}',
        minute(T0, [1.0]).encode().replace(b'"end":1', b'"end":0'),
    ],
)
def test_what_is_no_record_is_refused(value: bytes) -> None:
    with pytest.raises(Rejected):
        Record.decode(value)


def test_a_step_is_the_finest_that_holds_a_window() -> None:
    assert Step.around(T0, T0 + 60_000) is Step.MINUTE
    assert Step.around(T0, T0 + 60_001) is Step.HOUR
    assert Step.around(Step.HOUR.floor(T0), Step.HOUR.floor(T0) + 3_600_001) is Step.DAY


def _written() -> list[tuple[SketchKind, int, bytes]]:
    found = []
    for count in (0, 1, 5, 40, 300, 3_000):
        made = summary([float(i % 4_000) for i in range(count)], narrow=count % 3 == 0)
        found += [(kind, count, sketch.data) for kind, sketch in made.sketches.items()]
    return found


def test_sketches_of_devices_are_taken() -> None:
    for kind, readings, data in _written():
        foreign.check(kind, data, readings)


def test_damaged_sketches_of_devices_are_refused_or_harmless() -> None:
    """DataSketches itself ends the process on some of them."""
    rng, refused = random.Random(9), 0
    for kind, readings, data in _written():
        whole = Summary(readings, Numbers(), {})
        for _ in range(30):
            damaged = bytearray(data)
            for _ in range(rng.choice((1, 2, 8))):
                damaged[rng.randrange(min(len(data), rng.choice((8, 32, len(data)))))] = (
                    rng.randrange(256)
                )
            kept = bytes(damaged[: rng.choice((len(data), rng.randrange(len(data) + 1)))])
            try:
                foreign.check(kind, kept, readings)
            except Rejected:
                refused += 1
            else:
                answered = Summary(
                    readings, whole.numbers, {kind: made_of(kind, [kept, data], readings)}
                )
                answers.distinct(answered)
                answers.quantiles(answered, [0.5])
    assert refused > 300


def made_of(kind: SketchKind, parts: list[bytes], readings: int):
    from edgewake.cloud.summaries import sketches
    from edgewake.cloud.summaries.summary import Sketch

    return Sketch(readings, sketches.merge(kind, parts))


def test_sketches_of_another_seed_or_kind_are_refused() -> None:
    theta = datasketches.update_theta_sketch(9, 1.0, 7)
    theta.update("a")
    with pytest.raises(Rejected, match="seed"):
        foreign.check(SketchKind.THETA, theta.compact().serialize(), 1)
    with pytest.raises(Rejected):
        foreign.check(SketchKind.KLL, summary(["a"]).sketches[SketchKind.HLL].data, 1)
    with pytest.raises(Rejected, match="readings"):
        foreign.check(SketchKind.COUNT_MIN, summary(["a"]).sketches[SketchKind.COUNT_MIN].data, 2)
    assert SERIES.field == "price"
