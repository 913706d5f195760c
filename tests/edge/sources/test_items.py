"""What is found in a document that somebody else made, in order, within bounds, whatever is mixed
in it.
"""

from __future__ import annotations

import asyncio

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.sources.items import ITEMS_MAX, SLICE, checked, found
from edgewake.protocol.errors import Rejected
from tests.edge.sources.sink import MemorySink, intake_of


@pytest.mark.parametrize(
    ("document", "path", "items"),
    [
        (b"[]", "", []),
        (b"{}", "", [{}]),
        (b"5", "", [5]),
        (b"null", "", [None]),
        (b'{"a": {"b": {"n": 1}}}', "a.b", [{"n": 1}]),
        (b'{"a": {"b": []}}', "a.b", []),
        (b'{"a": null}', "a", [None]),
        (b'{"a.b": 1, "a": {"b": 2}}', "a.b", [2]),
        (b'{"a": 1}', "..", [{"a": 1}]),
        (b"1\n\n2\r\n", "", [b"1", b"2\r"]),
        (b'\xef\xbb\xbf{"a": 1}', "", [{"a": 1}]),
        (b"[" * 500 + b"]" * 500, "", None),
        (b"[" * 100_000, "", "refused"),
        (b'{"a": [1]}', "a.0", "refused"),
        (b'{"a": 1}\n{"a": 2}', "a", "refused"),
        (b"\n\n", "", "refused"),
        (b"", "a", "refused"),
        (b"\xff\xfe", "", "refused"),
    ],
    ids=range(18),
)
def test_what_may_be_readings_in_a_document(document: bytes, path: str, items: object) -> None:
    if items == "refused":
        with pytest.raises(Rejected):
            found(document, path)
    else:
        got = found(document, path)
        assert items is None or got == items


@pytest.mark.parametrize("count", [0, 1, SLICE - 1, SLICE, SLICE + 1, ITEMS_MAX, ITEMS_MAX + 1])
async def test_of_a_document_so_many_are_taken_and_the_others_counted(count: int) -> None:
    sink = MemorySink()
    readings = await checked(intake_of(sink), [{"n": n} for n in range(count)])
    assert [fields["n"] for _, fields in readings] == list(range(min(count, ITEMS_MAX)))
    assert sum(sink.lost.values()) == max(0, count - ITEMS_MAX)


async def test_many_readings_leave_the_others_their_turns() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await checked(intake_of(MemorySink()), [{"n": n} for n in range(10 * SLICE)])
    task.cancel()
    assert turns >= 9


@given(
    st.lists(
        st.sampled_from(
            [
                {"n": 1},
                {"m": "x"},
                {"n": float("inf")},
                {},
                {"n": {}},
                5,
                None,
                "x",
                [],
                b'{"n": 2}',
                b"nonsense",
                b"[]",
            ]
        ),
        max_size=30,
    )
)
async def test_whatever_is_mixed_in_a_document_the_good_ones_are_taken_in_order(
    items: list[object],
) -> None:
    sink = MemorySink()
    readings = await checked(intake_of(sink), items)
    good = [
        {"n": 2} if isinstance(item, bytes) else item
        for item in items
        if item in ({"n": 1}, {"m": "x"}, b'{"n": 2}')
    ]
    assert [fields for _, fields in readings] == good
    assert sum(sink.lost.values()) == len(items) - len(good)


def test_a_document_of_lines_is_as_one_of_a_list() -> None:
    lines = b"\n".join(orjson.dumps({"n": n}) for n in range(10))
    assert [orjson.loads(item) for item in found(lines)] == found(
        b"[" + lines.replace(b"\n", b",") + b"]"
    )
