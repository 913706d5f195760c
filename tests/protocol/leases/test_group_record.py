"""Groups of clients as they are stored."""

from __future__ import annotations

import orjson
import pytest

from edgewake.protocol.leases.group_record import Group, Held, decode, encode

GROUP = Group(
    id="g1", owner="o", name="n", streams=("speed",), cursor="v2.x", done=((0, 1, 5, 0),),
    held=(Held((0, 2, 9, 3), 2, 1000),), events=4, created_at=1, used_at=1,
)  # fmt: skip


def test_a_group_is_read_as_it_was_written_and_what_is_newer_is_passed_over() -> None:
    assert decode(orjson.dumps(orjson.loads(encode(GROUP)) | {"of_a_later_version": 1})) == GROUP


def test_its_row_is_named_by_its_id() -> None:
    assert GROUP.but(id="g2").key == "group|g2"


@pytest.mark.parametrize(
    "change", [{"done": [[1, 2, 3]]}, {"held": [[1, 2, 3, 4, 5]]}, {"streams": None}, {"done": 1}]
)
def test_what_is_no_group_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode(orjson.dumps(orjson.loads(encode(GROUP)) | change))
