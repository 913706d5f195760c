"""Packs of SenML as RFC 8428 has them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.maps.decoders.senml import RECORDS_MAX, readings

NOW_MS = 1_790_000_000_000


def read(*records: Any) -> list[dict[str, Any]]:
    return readings(orjson.dumps(records), NOW_MS)


def test_records_of_one_name_and_time_are_one_reading_with_bases_resolved() -> None:
    found = read(
        {"bn": "urn:a/", "bt": 1_276_020_076, "bu": "A", "bv": 1},
        {"n": "voltage", "u": "V", "v": 120.1},
        {"n": "current", "v": 1.2},
        {"n": "current", "t": 5, "v": 2},
    )  # fmt: skip
    assert found == [
        {"name": "urn:a/", "time": 1_276_020_076.0, "fields": {"voltage": 121.1, "current": 2.2},
         "units": {"voltage": "V", "current": "A"}},
        {"name": "urn:a/", "time": 1_276_020_081.0, "fields": {"current": 3.0},
         "units": {"current": "A"}},
    ]  # fmt: skip


def test_a_small_time_counts_from_now() -> None:
    (reading,) = read({"bn": "a", "t": -5, "vs": "on"})
    assert (reading["time"], reading["fields"]) == (NOW_MS / 1000 - 5, {"value": "on"})


def test_what_comes_twice_for_one_name_and_time_is_another_reading() -> None:
    found = read({"n": "x", "u": "Cel", "v": 1}, {"n": "x", "u": "K", "v": 274.15})
    assert [(one["fields"], one["units"]) for one in found] == [
        ({"x": 1}, {"x": "Cel"}), ({"x": 274.15}, {"x": "K"}),
    ]  # fmt: skip


def test_truth_data_and_sums_are_values_too() -> None:
    (reading,) = read({"n": "a", "vb": True}, {"n": "b", "vd": "aGk"}, {"n": "c", "v": 1, "s": 9})
    assert reading["fields"] == {"a": True, "b": "aGk", "c": 1, "c_sum": 9.0}


def test_a_base_unit_is_of_numbers_alone() -> None:
    (reading,) = read({"bu": "A", "n": "a", "v": 1}, {"n": "b", "vb": True}, {"n": "c", "vs": "x"})
    assert reading["units"] == {"a": "A"}


@pytest.mark.parametrize(
    ("record", "why"),
    [({"bver": 11, "v": 1}, "at most 10"), ({"x_": 1, "v": 1}, "must be understood"),
     ({"n": 1, "v": 1}, "n: expected text"), ({"v": True}, "v: expected a number"),
     ({"vb": 1}, "vb: expected true or false"), ({"v": 1, "t": "x"}, "t: expected a number")],
)  # fmt: skip
def test_a_wrong_record_refuses_the_pack_and_is_named(record: dict[str, Any], why: str) -> None:
    with pytest.raises(Rejected, match=f"SenML record 2: .*{why}"):
        read({"n": "a", "v": 1}, record)


@pytest.mark.parametrize(
    ("pack", "reason"),
    [([], RejectReason.SHAPE), ([1], RejectReason.SHAPE), ({"v": 1}, RejectReason.SHAPE),
     ([{"v": 1}] * (RECORDS_MAX + 1), RejectReason.OVERSIZE)],
    ids=["empty", "numbers", "object", "endless"],
)  # fmt: skip
def test_what_is_no_pack_is_refused(pack: Any, reason: RejectReason) -> None:
    with pytest.raises(Rejected) as refused:
        readings(orjson.dumps(pack), NOW_MS)
    assert refused.value.reason is reason


@pytest.mark.parametrize(
    "record",
    [
        {"bt": 1e308, "n": "a", "v": 1},
        {"bt": 1e308, "t": 1e308, "n": "a", "v": 1},
        {"t": -1e308, "n": "a", "v": 1},
        {"t": 4e9 * 2, "n": "a", "v": 1},
    ],
)
def test_a_time_that_cannot_be_refuses_the_pack(record: dict[str, Any]) -> None:
    with pytest.raises(Rejected, match="expected 1970 to 2100"):
        read(record)
