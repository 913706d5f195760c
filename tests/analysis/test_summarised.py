"""Which streams and fields are summed up: new ones push none out."""

from __future__ import annotations

import pyarrow as pa

from edgewake.cloud.analysis.emit import Batch
from edgewake.cloud.analysis.summaries import FIELDS_MAX, STREAMS_MAX, SummaryJob, summarised
from edgewake.protocol.stream import FieldType

NUMBER = FieldType.NUMBER
ROWS = pa.table({"field": ["x"], "minute": [60_000], "hll": [b"h"], "kll": [b"k"], "top": [b"t"]})


def test_fields_are_taken_in_the_order_in_which_the_catalogue_learnt_them() -> None:
    old = {f"z{i:02d}": NUMBER for i in range(FIELDS_MAX)}
    assert summarised({"s": old | {"a": NUMBER}}, ()) == {"s": tuple(sorted(old.items()))}


def test_streams_that_have_a_state_keep_their_place() -> None:
    old = [f"z{i:02d}" for i in range(STREAMS_MAX - 1)]
    catalogue = {name: {"x": NUMBER} for name in ("b", *old, "a")} | {"empty": {}}
    assert set(summarised(catalogue, set(old))) == {*old, "a"}


def test_a_stream_without_fields_has_nothing_to_sum_up() -> None:
    assert summarised({"s": {}}, ()) == {}


def test_the_lake_gets_what_was_committed_and_nothing_before() -> None:
    kept: list[tuple[str, int]] = []
    job = SummaryJob("s", (("x", NUMBER),), lambda stream, _, revision: kept.append((stream, revision)))
    (output,) = job.outputs(ROWS, Batch(revision=4, top_before=None, top=None), {})
    assert (output.key, kept) == (b"s|x|60000", []), "its transaction may still fail, or be another driver's"
    job.committed(ROWS, 4)
    job.committed(ROWS.slice(0, 0), 5)
    assert kept == [("s", 4)]
