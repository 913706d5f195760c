"""The sidecar as bad luck and strangers write it: whatever is in it, the log opens, loses nothing
and begins a new epoch where it must.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.edge.log.tables.consumers import ConsumerState
from edgewake.edge.log.tables.sidecar import (
    REWRITE_BYTES,
    SIDECAR_NAME,
    Change,
    Known,
    Sidecar,
    decode,
)
from edgewake.edge.log.tables.streams import StreamState
from tests.edge.helpers import Sent, opened, put
from tests.examples import examples
from tests.services import wait_until

FIRST: dict[str, Any] = {"log": "abc", "epoch": 7, "commit": 10, "version": 5, "page_size": 1024}


def line(value: object) -> bytes:
    """With its checksum, as only the log writes it, or somebody who wants to."""
    text = orjson.dumps(value)
    return b"%08x %s\n" % (zlib.crc32(text), text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63),
        2**63) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner,
        max_size=4), max_leaves=8,
)  # fmt: skip
KEYS = st.sampled_from(
    ["commit", "streams", "formed", "freed", "sources", "counters", "consumers", "forgotten"]
)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_sidecar_or_none(data: bytes) -> None:
    found = decode(data)
    assert found is None or isinstance(found, Known)


@given(st.dictionaries(st.sampled_from([*FIRST, "streams", "consumers"]), JSON, max_size=5))
@settings(max_examples=examples(40))
def test_a_first_line_of_any_values_is_one_with_an_identity_or_none(
    changed: dict[str, Any],
) -> None:
    found = decode(line(FIRST | changed))
    if found is not None:
        assert isinstance(found.log_id, str)
        assert (
            type(found.epoch)
            is type(found.commit)
            is type(found.version)
            is type(found.page_size)
            is int
        )


@given(st.dictionaries(KEYS, JSON, max_size=6))
@settings(max_examples=examples(40))
def test_a_later_line_of_any_values_ends_the_reading_at_the_worst(changed: dict[str, Any]) -> None:
    found = decode(
        line(FIRST)
        + line({"commit": 11} | changed)
        + line({"commit": 12, "sources": {"file": "12"}})
    )
    assert found is not None
    assert (found.log_id, found.epoch) == ("abc", 7)


@pytest.mark.parametrize(
    "odd",
    [[1], 7, "text", None, {}, {"commit": "x"}, {"commit": None}, {"commit": 11, "sources": [1]},
        {"commit": 11, "formed": [[1]]},
     {"commit": 11, "freed": [1]}, {"commit": 11, "consumers": [["mean", [], 0, 0]]},
     {"commit": 11, "consumers": [["mean", {"s": "x"}, 0, 0]]},
     {"commit": 11, "streams": [[1, "speed"]]}, {"commit": 11, "counters": 7},
     {"commit": 11, "forgotten": 7}],
)  # fmt: skip
def test_a_line_that_means_nothing_ends_the_reading_and_what_came_before_holds(odd: object) -> None:
    found = decode(
        line(FIRST)
        + line({"commit": 10, "sources": {"file": "10"}})
        + line(odd)
        + line({"commit": 12, "sources": {"file": "12"}})
    )
    assert found is not None
    assert found.sources == {"file": "10"}


@pytest.mark.parametrize(
    "first",
    [
        {},
        [],
        FIRST | {"epoch": "7"},
        FIRST | {"epoch": None},
        FIRST | {"commit": 1.5},
        FIRST | {"log": 7},
        FIRST | {"version": True},
    ],
)
def test_a_log_beside_such_a_sidecar_opens_and_keeps_what_it_has(
    tmp_path: Path, first: object
) -> None:
    """It was set aside as damaged, at every start, until the oldest was deleted."""
    with opened(tmp_path) as events:
        put(events, range(1, 6))
    (tmp_path / SIDECAR_NAME).write_bytes(line(first))
    for life in range(3):
        sent = Sent()
        with opened(tmp_path, sent=sent) as events:
            assert events.epoch_began == ("without its sidecar" if life == 0 else None)
            events.start_sending()
            wait_until(lambda: sent.ns() == [1, 2, 3, 4, 5], "what is in it")  # noqa: B023
    assert not list(tmp_path.glob("*.damaged-*"))


@given(st.data())
def test_one_flipped_bit_takes_its_line_and_what_follows_and_changes_nothing_else(
    data: st.DataObject,
) -> None:
    lines = [
        line(FIRST),
        *(line({"commit": 11 + n, "sources": {"file": str(n)}}) for n in range(5)),
    ]
    whole = bytearray(b"".join(lines))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    broken = next(n for n in range(len(lines)) if at < sum(map(len, lines[: n + 1])))
    before, unharmed = decode(b"".join(lines[:broken])), decode(b"".join(lines))
    assert decode(bytes(whole)) in (before, unharmed), (
        "the case of a letter of its checksum may change"
    )


# what it says after any changes

CHANGES = st.lists(
    st.builds(
        Change,
        streams=st.lists(
            st.builds(
                StreamState, st.integers(1, 3), st.sampled_from(["a", "b"]), st.integers(0, 9)
            ),
            max_size=2,
        ),
        formed=st.lists(
            st.tuples(
                st.tuples(st.integers(1, 2), st.just(7), st.integers(1, 4)), st.just((1, 10, 1))
            ),
            max_size=3,
        ),
        freed=st.lists(st.tuples(st.integers(1, 2), st.just(7), st.integers(1, 4)), max_size=3),
        sources=st.dictionaries(st.sampled_from(["x", "y"]), st.text(max_size=3), max_size=2),
        counters=st.dictionaries(
            st.sampled_from(["lost_age", "lost_quota"]), st.integers(0, 9), max_size=2
        ),
        consumers=st.lists(
            st.builds(
                ConsumerState, st.sampled_from(["p", "q"]), st.just({"a": 1}), st.integers(0, 3)
            ),
            max_size=2,
        ),
        forgotten=st.lists(st.sampled_from(["p", "q"]), max_size=2),
    ),
    max_size=12,
)


@given(CHANGES, st.integers(0, 12))
@settings(max_examples=examples(40))
def test_lines_say_what_the_changes_were_and_a_file_written_anew_says_the_same(
    changes: list[Change], anew: int
) -> None:
    model, data = Known("abc", 7, 10, 5, 1024), line(FIRST)
    for number, change in enumerate(changes, start=11):
        if number - 11 == anew:
            found = decode(data)
            assert found is not None
            data = line(found.as_json())
        model.commit = number
        model.streams |= {stream.id: stream for stream in change.streams}
        model.frames = {
            key: of for key, of in model.frames.items() if key not in change.freed
        } | dict(change.formed)
        model.sources |= change.sources
        model.counters |= change.counters
        model.consumers = {
            name: of for name, of in model.consumers.items() if name not in change.forgotten
        }
        model.consumers |= {one.name: one for one in change.consumers}
        data += line({"commit": number} | change.as_json())
    assert decode(data) == model


def test_what_is_empty_takes_no_room_in_a_line() -> None:
    assert Change().as_json() == {}
    assert Change(sources={"file": "1"}).as_json() == {"sources": {"file": "1"}}


# the file


def test_nothing_is_added_to_a_file_that_was_never_written(tmp_path: Path) -> None:
    sidecar = Sidecar(tmp_path)
    sidecar.append(1, Change(sources={"file": "1"}))
    sidecar.sync()
    sidecar.close()
    assert (sidecar.read(), sidecar.is_due) == (None, False)


def test_it_is_due_at_its_bound_and_not_before(tmp_path: Path) -> None:
    sidecar = Sidecar(tmp_path)
    sidecar.rewrite(Known("abc", 7, 1))
    empty = len(line({"commit": 2, "sources": {"file": ""}}))
    sidecar.append(2, Change(sources={"file": "x" * (REWRITE_BYTES - empty - 1)}))
    assert not sidecar.is_due
    sidecar.append(3, Change())
    assert sidecar.is_due
    sidecar.close()


def test_a_file_whose_successor_cannot_be_written_stays(tmp_path: Path) -> None:
    """In the way of the new one stands a folder; nothing of it is left open."""
    sidecar = Sidecar(tmp_path)
    sidecar.rewrite(Known("abc", 7, 1))
    (tmp_path / "epoch.new").mkdir()
    sidecar.rewrite(Known("abc", 7, 2))
    assert sidecar.is_due
    sidecar.append(3, Change(sources={"file": "3"}))
    (tmp_path / "epoch.new").rmdir()
    assert sidecar.read() == Known("abc", 7, 1)
    sidecar.rewrite(Known("abc", 7, 4))
    assert (sidecar.read(), sidecar.is_due) == (Known("abc", 7, 4), False)
    sidecar.close()
    sidecar.close()
    assert (tmp_path / SIDECAR_NAME).stat().st_mode & 0o077 == 0
