"""Which streams and fields are summed up: new ones push none out."""

from __future__ import annotations

from edgewake.cloud.analysis.summaries import FIELDS_MAX, STREAMS_MAX, summarised
from edgewake.protocol.stream import FieldType

NUMBER = FieldType.NUMBER


def test_fields_are_taken_in_the_order_in_which_the_catalogue_learnt_them() -> None:
    old = {f"z{i:02d}": NUMBER for i in range(FIELDS_MAX)}
    assert summarised({"s": old | {"a": NUMBER}}, ()) == {"s": tuple(sorted(old.items()))}


def test_streams_that_have_a_state_keep_their_place() -> None:
    old = [f"z{i:02d}" for i in range(STREAMS_MAX - 1)]
    catalogue = {name: {"x": NUMBER} for name in ("b", *old, "a")} | {"empty": {}}
    assert set(summarised(catalogue, set(old))) == {*old, "a"}


def test_a_stream_without_fields_has_nothing_to_sum_up() -> None:
    assert summarised({"s": {}}, ()) == {}
