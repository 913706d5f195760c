"""Whether a value occurred: never a wrong no, a wrong yes no more often than declared, and the
reason where neither can be said.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import datasketches
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.summaries import answers, foreign, sketches
from edgewake.cloud.summaries.summary import Record, Sketch, Summary, merged
from edgewake.protocol.errors import Rejected
from edgewake.protocol.sketches import bloom
from edgewake.protocol.sketches.bloom import Bloom
from edgewake.protocol.sketches.count_min import CountMin
from edgewake.protocol.sketches.sketch import BLOOM_BITS_MIN, SketchKind, item_text
from tests.bench.recorded_fields import FIELDS, data
from tests.examples import examples
from tests.summaries.made import SERIES, summary

THETA, BLOOM = SketchKind.THETA, SketchKind.BLOOM
ABSENT = [f"absent {i}" for i in range(2_000)]


def asked(found: Summary, *texts: str) -> list[bool | None]:
    return [one.value for one in answers.presence(found, texts)]


def in_minutes(values: Sequence[float | str], minutes: int) -> list[Summary]:
    return [summary(values[i::minutes]) for i in range(minutes)]


def wrong(found: Summary) -> int:
    """Of ABSENT those that are said to have occurred."""
    return sum(value is not False for value in asked(found, *ABSENT))


def most_wrong(error: float) -> float:
    """Five standard deviations above what is declared."""
    return len(ABSENT) * error + 5 * math.sqrt(len(ABSENT) * error * (1 - error))


def test_of_1348_values_one_that_was_never_sent_is_no() -> None:
    values = [f"line {i % 1_348}" for i in range(6_000)]
    found = merged(in_minutes(values, 60))
    table = merged(summary(values[i::60], narrow=True) for i in range(60)).sketch(
        SketchKind.COUNT_MIN
    )
    assert isinstance(table, CountMin)
    assert sum(table.count(text) > 0 for text in ABSENT) > 0.95 * len(ABSENT), "as it was"
    assert all(asked(found, *set(values)))
    assert wrong(found) == 0
    assert BLOOM not in found.sketches, "theta still holds all of them"
    assert answers.presence(found, [values[0]])[0].false_positive < 1e-15


@pytest.mark.parametrize("different", [3_000, 10_000, 100_000])
def test_under_at_and_ten_times_over_the_capacity_yes_is_as_seldom_wrong_as_declared(
    different: int,
) -> None:
    values = [f"value {i}" for i in range(different)]
    parts = in_minutes(values, 24)
    found = merged(parts)
    assert (BLOOM in found.sketches) is (different > 3_000)
    assert all(asked(found, *values[::7]))
    assert wrong(found) <= most_wrong(bloom.ERROR)
    said = answers.presence(found, [values[0]])[0]
    assert said.false_positive <= bloom.ERROR
    assert wrong(found) <= most_wrong(said.false_positive)
    hours = [merged(parts[i : i + 6]) for i in range(0, 24, 6)]
    assert merged(reversed(hours)).sketches.get(BLOOM) == found.sketches.get(BLOOM)


def test_more_values_than_a_filter_takes_are_not_said_to_have_occurred() -> None:
    rng = random.Random(3)
    over = Bloom.merged(
        [Bloom(bloom.BITS, bloom.ONE_IN, ())], (rng.getrandbits(63) for _ in range(400_000))
    )
    full = over.merge(Bloom.of(["it"]))
    found = Summary(500_000, sketches={BLOOM: Sketch(500_000, full.encode())})
    said = answers.presence(found, ["it"])[0]
    assert (said.value, said.false_positive) == (None, full.false_positives)
    assert said.reason is not None
    assert "declared are 1 %" in said.reason
    nos = asked(found, *ABSENT).count(False)
    assert nos >= len(ABSENT) - most_wrong(full.false_positives), "no stays certain"


small = st.lists(st.lists(st.integers(0, 300), max_size=60), min_size=1, max_size=6)


@settings(max_examples=examples(60), deadline=None)
@given(small, st.randoms(use_true_random=False), st.integers(5, 8))
def test_no_value_is_ever_forgotten_in_any_order_and_grouping(
    lists: list[list[int]], rng: random.Random, log2: int
) -> None:
    """With a theta sketch of 32 to 256 entries, so that filters are made of it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sketches, "THETA_LOG2_ENTRIES", log2)
        parts = [of_texts([f"v{i}" for i in some], has_theta=rng.random() < 0.7) for some in lists]
        rng.shuffle(parts)
        cut = rng.randrange(len(parts) + 1)
        wholes = [merged([merged(parts[:cut]), merged(parts[cut:])]), merged(parts)]
        for whole in wholes:
            there = {f"v{i}" for some in lists for i in some}
            assert all(asked(whole, *there))
            assert asked(whole, "w1", "w2").count(True) == 0
            assert None not in asked(whole, "w1", "w2"), "every reading is known"


def of_texts(texts: list[str], *, has_theta: bool) -> Summary:
    """With a theta sketch, or with the filter of a device."""
    theta = datasketches.update_theta_sketch(12)
    for text in texts:
        theta.update(text)
    data = theta.compact().serialize() if has_theta else Bloom.of(texts).encode()
    return Summary(len(texts), sketches={THETA if has_theta else BLOOM: Sketch(len(texts), data)})


def test_readings_whose_values_nobody_knows_make_no_a_cannot_say() -> None:
    known, unknown = summary(["a", "b"]), Summary(7)
    found = merged([known, unknown])
    assert asked(found, "a", "c") == [True, None]
    said = answers.presence(found, ["c"])[0]
    assert (said.seen, said.reason) == (2, "the values of 7 of 9 readings are not known")
    assert asked(Summary(), "c") == [False], "where there is no reading there is no value"


def test_a_theta_that_was_an_estimate_already_is_not_taken_for_all_values() -> None:
    estimated = summary([f"v{i}" for i in range(2_000)], narrow=True)
    found = merged([estimated, summary(["a"])])
    assert answers.presence(found, ["w"])[0].value is None
    assert answers.presence(found, ["a"])[0].value is True


@pytest.mark.parametrize("text", ["", "x" * 257, "ä" * 129])
def test_texts_that_sketches_do_not_hold_are_not_denied(text: str) -> None:
    found = merged([summary(["a", text or "b"])])
    said = answers.presence(found, [text])[0]
    assert said.value is None
    assert said.reason is not None
    assert "sketches hold those of 1 to 256" in said.reason


def test_a_number_is_found_however_it_is_written() -> None:
    numbers, texts = summary([7.0, 0.5]), summary(["7"])
    assert asked(numbers, "7", "7.0", "7e0", "0.50", "8", "x") == [True] * 4 + [False] * 2
    assert asked(texts, "7", "7.0") == [True, False]


def test_a_declared_series_has_its_filter_and_keeps_it() -> None:
    declared = Bloom.of(["a", "b"], capacity=50_000, error=0.001)
    part = summary(["a", "b"])
    with_filter = Summary(
        part.readings, part.numbers, {**part.sketches, BLOOM: Sketch(2, declared.encode())}
    )
    found = merged([with_filter, merged([with_filter, summary(["c"])])])
    filled = found.sketch(BLOOM)
    assert isinstance(filled, Bloom)
    assert (filled.bits, filled.one_in) == (declared.bits, 1_000)
    assert found.sketches[BLOOM].seen == 5
    record = Record(SERIES, 0, 60_000, found)
    assert Record.decode(record.encode()) == record


def test_a_devices_filter_is_checked() -> None:
    coarse = Bloom(BLOOM_BITS_MIN - 1, bloom.ONE_IN, (1, 5))
    lax = Bloom(bloom.BITS, 1, (1, 5))
    for filled, readings, what in (
        (coarse, 9, "expected 2\\^20 at least"),
        (lax, 9, "an error of 1/1:"),
        (Bloom.of(["a", "b"]), 1, "more places than readings"),
    ):
        with pytest.raises(Rejected, match=what):
            foreign.check(BLOOM, filled.encode(), readings)
    foreign.check(BLOOM, Bloom.of(["a", "b"]).encode(), 2)


@pytest.mark.parametrize("name", FIELDS)
def test_of_a_recorded_field_it_says_what_a_set_says(name: str) -> None:
    if not data().is_dir():
        pytest.skip("no recorded data at ../shared/data")
    values = FIELDS[name]()[:20_000]
    texts = [item_text(value) for value in values]
    found = merged(merged(in_minutes(values[i::4], 5)) for i in range(4))
    there = set(texts)
    answered = answers.presence(found, sorted(there))
    expected = [None if not 0 < len(text.encode()) <= 256 else True for text in sorted(there)]
    assert [one.value for one in answered] == expected
    assert not there & set(ABSENT)
    assert wrong(found) <= most_wrong(bloom.ERROR)
