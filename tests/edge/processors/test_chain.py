"""A chain's output depends on its input alone: not on batches, not on crashes."""

from __future__ import annotations

from collections import Counter

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.edge.log.tables.codec import Reading, batches
from edgewake.edge.processors.build import _STEPS
from edgewake.edge.processors.chain import decode_state
from edgewake.edge.processors.operators.keyed import Keyed
from edgewake.edge.processors.processor import Applied, Fold, Stepped
from edgewake.protocol.frames.frame import decode
from tests.edge.processors.helpers import at, chain, made, readings, remarks, series
from tests.examples import examples

EACH = [
    {"type": "filter", "where": "x > 0"},
    {"type": "select", "drop": ["y"], "rename": {"x": "z"}},
    {"type": "explode", "field": "k", "position": "at"},
    {"type": "units",
        "fields": {"x": {"unit": "km/h", "to": "m/s"}, "y": {"unit": "[degF]", "to": "K"}}},
    {"type": "derive",
        "fields": {"sum": "x + y", "is_hot": "x > 50 OR k = 'a'", "root": "sqrt(x)"}},
    {"type": "deadband", "fields": ["x"], "delta": 2, "max_s": 5},
    {"type": "deadband", "percent": 10},
    {"type": "rate", "field": "x", "counter": True},
    {"type": "smooth", "fields": ["x", "y"], "half_life_s": 3},
    {"type": "smooth", "fields": ["x"], "method": "median", "count": 3},
    {"type": "downsample", "fields": ["x", "y"], "every_s": 2, "grace_s": 1},
    {"type": "lttb", "field": "x", "every_s": 3},
    {"type": "window", "fields": ["x"], "size_s": 5,
        "aggregates": ["mean", "stddev", "sum", "count", "first", "last", "range"]},
    {"type": "window", "fields": ["x", "y"], "size_s": 6, "every_s": 2, "grace_s": 1.5},
    {"type": "window", "fields": ["x"], "size_count": 4, "every_count": 2},
    {"type": "rule", "name": "high", "when": "x > 10", "clear": "x < 0", "for_s": 1,
        "for_count": 2},
    {"type": "seen", "field": "x", "capacity": 10, "forget_s": 4},
    {"type": "seen", "field": "y", "mark": "again"},
    {"type": "pattern", "name": "up", "sequence": ["x < 0", "x > 0", "y > 0"], "within_s": 10},
]  # fmt: skip
KEYED = [
    one | {"by": "k", "keys_max": 2}
    for one in EACH
    if one["type"] not in {"filter", "select", "explode", "units", "derive"}
]
LONG = [
    [EACH[4], EACH[8], EACH[5], EACH[13]],
    [EACH[7], {"type": "rule", "name": "fast", "when": "x_rate > 1"}],
    [KEYED[3], EACH[12]],
]
CHAINS = [[one] for one in EACH + KEYED] + LONG


def test_every_kind_of_processor_is_tried_here():
    assert {str(one["type"]) for one in EACH} == set(_STEPS)


@pytest.mark.parametrize(
    "processors",
    CHAINS,
    ids=lambda one: "+".join(str(each["type"]) + "_by" * ("by" in each) for each in one),
)
@settings(max_examples=examples(40))
@given(data=st.data(), given_readings=readings())
def test_batches_and_crashes_change_nothing(
    processors: list[dict[str, object]], data: st.DataObject, given_readings: list[Reading]
):
    """Each piece is applied, perhaps in vain (a kill before its commit), then again by a process
    that knows what was committed.
    """
    whole = chain(*processors).apply(chain(*processors).begin(), given_readings)
    place, kept, out = 0, None, list[Reading]()
    while place < len(given_readings):
        after = data.draw(st.integers(place + 1, len(given_readings)))
        one = chain(*processors)
        state = one.resume(kept)
        if data.draw(st.booleans()):
            one.apply(state, given_readings[place : data.draw(st.integers(place, after))])
        applied = one.apply(state, given_readings[place:after])
        place, kept, out = after, applied.state.encode(), [*out, *applied.readings]
    assert out == list(whole.readings)
    if kept is not None:
        assert kept == whole.state.encode()


def test_a_processor_that_remembers_beside_its_state_is_found_out():
    """The control of the test above."""

    class Forgetful:
        initial = 0

        def __init__(self) -> None:
            self.count = 0

        def apply(self, state: int, readings: list[Reading]) -> Applied:
            self.count += len(readings)
            return Applied(
                state,
                [(t, {"n": self.count}) for t, _ in readings],
                type(Applied(0, (), {}).remarks)(),
            )  # type: ignore[arg-type]

    numbers = series(1, 2)
    whole = Forgetful().apply(0, numbers)
    pieces = [Forgetful().apply(0, numbers[:1]), Forgetful().apply(0, numbers[1:])]
    assert [reading for piece in pieces for reading in piece.readings] != whole.readings


@pytest.mark.parametrize(
    "processors", CHAINS, ids=lambda one: "+".join(str(each["type"]) for each in one)
)
@settings(max_examples=examples(20))
@given(given_readings=readings())
def test_what_is_made_can_be_logged_and_read_by_the_bridge(
    processors: list[dict[str, object]], given_readings: list[Reading]
):
    out = made(chain(*processors), given_readings)
    for batch in batches(out, readings_max=1000, bytes_max=1 << 18) if out else ():
        frame = decode(b'{"epoch":1,"frame":1,"seq":1,' + batch.body[1:])
        assert len(frame.t) == batch.count


@settings(max_examples=examples(20))
@given(given_readings=readings())
def test_input_is_never_changed(given_readings: list[Reading]):
    before = orjson.dumps(given_readings, option=orjson.OPT_PASSTHROUGH_DATACLASS)
    for processors in CHAINS:
        made(chain(*processors), given_readings)
    assert orjson.dumps(given_readings, option=orjson.OPT_PASSTHROUGH_DATACLASS) == before


def test_a_changed_chain_begins_anew():
    old = chain({"type": "window", "fields": ["x"], "size_count": 3})
    kept = old.apply(old.begin(), series(1, 2)).state.encode()
    new = chain({"type": "window", "fields": ["x"], "size_count": 2})
    assert old.resume(kept).readings_in == 2
    assert new.resume(kept) == new.begin()


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'{"digest":"x"}', b"\xff"])
def test_a_state_that_is_none_begins_anew(body: bytes):
    assert decode_state(body) is None
    one = chain(EACH[0])
    assert one.resume(body) == one.begin()


def test_remarks_count_what_a_rule_was_applied_to():
    one = chain({"type": "filter", "where": "x > 1"}, {"type": "rate", "field": "y"})
    given_readings = [
        at(0, x=2, y=1),
        at(1, y=3),
        at(2, x=5, y=True),
        at(3, x=5),
        at(3, x=7, y=2),
        at(2, x=9, y=3),
    ]
    assert remarks(one, given_readings) == {
        "1 filter": {"unknown": 1},
        "2 rate": {"not_a_number": 1, "missing": 1, "backwards": 1},
    }


def test_a_step_that_raises_costs_its_reading_and_no_other():
    class Broken:
        initial = 0

        def step(self, state: int, reading: Reading) -> Stepped:
            if reading[1]["x"] == 2:
                raise ZeroDivisionError
            return Stepped(state + 1, ((reading[0], {"n": state}),))

    numbers = series(1, 2, 3)
    assert Fold(Broken()).apply(0, numbers) == Applied(
        2, [at(0, n=0), at(2, n=1)], Counter(failed=1)
    )
    keyed = Keyed(Broken(), "k", 10).apply({}, numbers)
    assert (keyed.readings, keyed.remarks) == (
        [at(0, k=None, n=0), at(2, k=None, n=1)],
        Counter(failed=1),
    )


def test_what_is_made_is_no_larger_than_a_reading_may_be():
    many = [
        {"type": "derive", "fields": {f"f{place}_{n}": "upper(x)" for n in range(32)}}
        for place in range(9)
    ]
    one = chain(*many)
    given_readings = [at(0, x=1), at(1, x="ß" * 3000), at(2, x="a")]
    assert made(one, given_readings) == []
    assert remarks(one, given_readings)["9 derive"]["too_large"] == 3
    few = chain(*many[:7])
    assert [reading[0] for reading in made(few, given_readings)] == [at(0)[0], at(2)[0]]
