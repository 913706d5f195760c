"""What goes into a sketch and what does not, and the child that makes them: its pipe, its windows,
its bounds.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from edgewake.edge.sketches.maker import Maker, serve
from edgewake.edge.sketches.pipe import LENGTH
from edgewake.protocol.sketches.sketch import Numbers, SketchKind

OWN = (SketchKind.NUMBERS, SketchKind.COUNT_MIN, SketchKind.BLOOM)


# the maker


def made(maker: Maker, window: int) -> dict[tuple[str, str], int]:
    """(field, kind) → readings."""
    return {(field, kind): count for field, kind, count, _ in maker.over(window)}


def test_windows_and_fields_are_apart_and_a_window_is_given_once() -> None:
    maker = Maker(OWN)
    maker.take([[1, "speed", [1, 2]], [1, "name", ["a"]], [2, "speed", [3]]])
    maker.take([[1, "speed", [4]]])
    assert made(maker, 1) == {
        ("name", "count_min"): 1,
        ("name", "bloom"): 1,
        ("speed", "numbers"): 3,
        ("speed", "count_min"): 3,
        ("speed", "bloom"): 3,
    }
    assert made(maker, 1) == {}
    assert made(maker, 2) == {("speed", kind): 1 for kind in ("numbers", "count_min", "bloom")}
    assert made(maker, -7) == {}


def test_a_sketch_that_saw_nothing_is_not_sent() -> None:
    maker = Maker([SketchKind.NUMBERS])
    maker.take([[1, "name", ["a", True]], [1, "speed", []]])
    assert maker.over(1) == []


def served(*messages: bytes) -> list[Any]:
    """What the child answers to these bytes on its pipe."""
    outgoing = io.BytesIO()
    serve(Maker([SketchKind.NUMBERS]), io.BytesIO(b"".join(messages)), outgoing)
    answers, data = [], outgoing.getvalue()
    while data:
        (size,) = LENGTH.unpack(data[: LENGTH.size])
        answers.append(orjson.loads(data[LENGTH.size : LENGTH.size + size])["sketches"])
        data = data[LENGTH.size + size :]
    return answers


def message(value: object) -> bytes:
    text = orjson.dumps(value)
    return LENGTH.pack(len(text)) + text


def test_the_child_answers_in_order_and_ends_with_its_input() -> None:
    answers = served(
        message({"values": [[1, "speed", [1, 2]]]}), message({"over": 1}), message({"over": 1}),
        message({"values": [[2, "speed", [5]]]}),
        message({"over": 2}),
    )  # fmt: skip
    assert [[(field, kind, count) for field, kind, count, _ in one] for one in answers] == [
        [("speed", "numbers", 2)], [], [("speed", "numbers", 1)],
    ]  # fmt: skip
    assert Numbers.decode(base64.b64decode(answers[2][0][3])).max == 5


@pytest.mark.parametrize("torn", [b"", b"\x05", b"\x05\x00\x00"])
def test_an_input_that_ends_within_a_length_ends_it_in_order(torn: bytes) -> None:
    assert served(message({"over": 1}), torn) == [[]]


@pytest.mark.parametrize(
    "torn", [LENGTH.pack(10) + b'{"over', LENGTH.pack(0), LENGTH.pack(2) + b"xx"]
)
def test_a_message_that_is_none_ends_it_with_an_error_and_the_agent_makes_all_again(
    torn: bytes,
) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        served(torn)


# configuration


def test_the_kinds_that_need_no_library_are_the_ones_that_this_file_makes() -> None:
    from edgewake.edge.sketches.sketching import OWN_KINDS

    found: Sequence[SketchKind] = sorted(OWN_KINDS)
    assert found == sorted(OWN)
