"""The book of a device's requests at its bounds: what is remembered, what goes, and that it can
always be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.downlink import requests as module
from edgewake.edge.downlink.ledger import DONE_MAX, Ledger, Step
from edgewake.edge.downlink.requests import (
    BYTES_MAX,
    ENDED_MAX,
    WAITING_MAX,
    WAITING_OF_ALL_MAX,
    Book,
    Entry,
    kept_in,
)
from edgewake.edge.log.consumer import STATE_BYTES_MAX
from edgewake.protocol.downlink.downlink import BODY_CHARS_MAX, EXPIRES_S_MAX, REPLIES, REQUESTS
from edgewake.protocol.errors import LocalError
from tests.edge.helpers import opened

ASKED = {"name": "route", "body": "x", "expires_s": 60}
REPLY = {"state": "answered", "body": "12 km", "detail": ""}


def asked(book: Book, key: str, at: int = 1, **more: object) -> Book:
    return book.asked(at, ASKED | {"id": key} | more)  # type: ignore[dict-item]


def replied(book: Book, key: str, at: int = 2, **more: object) -> Book:
    return book.replied(at, REPLY | {"id": key} | more)


@pytest.mark.parametrize(("count", "oldest"), [(WAITING_MAX, "w0"), (WAITING_MAX + 1, "w1")])
def test_the_oldest_request_goes_when_there_is_one_too_many(count: int, oldest: str) -> None:
    book = Book()
    for number in range(count):
        book = asked(book, f"w{number}")
    assert (len(book.entries), next(iter(book.entries))) == (WAITING_MAX, oldest)


@pytest.mark.parametrize(("count", "oldest"), [(ENDED_MAX, "e0"), (ENDED_MAX + 1, "e1")])
def test_the_oldest_reply_goes_when_there_is_one_too_many(count: int, oldest: str) -> None:
    book = Book()
    for number in range(count):
        book = replied(book, f"e{number}")
    assert (len(book.entries), next(iter(book.entries))) == (ENDED_MAX, oldest)


def test_a_thing_that_asks_much_pushes_out_what_it_asked_itself() -> None:
    book = asked(Book(), "own").asked(1, ASKED | {"id": "quiet"}, "meter-1")
    for number in range(WAITING_MAX + 1):
        book = book.asked(1, ASKED | {"id": f"w{number}"}, "meter-2")
    assert {"own", "meter-1/quiet"} <= book.entries.keys()
    assert "meter-2/w0" not in book.entries
    assert len(book.entries) == 2 + WAITING_MAX


def test_many_things_have_a_bound_together_and_who_has_the_most_loses_the_oldest() -> None:
    book = asked(Book(), "own").asked(1, ASKED | {"id": "a"}, "first")
    for number in range(WAITING_MAX):
        book = book.asked(1, ASKED | {"id": f"w{number}"}, "many")
    others = WAITING_OF_ALL_MAX - len(book.entries)
    for number in range(others + 1):
        book = book.asked(1, ASKED | {"id": "a"}, f"t{number}")
    assert len(book.entries) == WAITING_OF_ALL_MAX
    gone = {"own", "first/a", "many/w0", "many/w1", "t0/a"} - book.entries.keys()
    assert gone == {"many/w0"}


def test_a_book_full_of_what_waits_has_room_for_replies_and_can_be_stored() -> None:
    waiting = [
        Entry("i" * 56, "n" * 64, 2**43, EXPIRES_S_MAX, thing=f"{number:064d}")
        for number in range(WAITING_OF_ALL_MAX)
    ]
    book = Book({entry.key: entry for entry in waiting})
    for key in ("e0", "e1"):
        book = replied(book, key, body="\N{GRINNING FACE}" * BODY_CHARS_MAX)
    assert {"e0", "e1"} <= book.entries.keys()
    assert len(book.encode()) <= BYTES_MAX < STATE_BYTES_MAX


def test_replies_to_one_thing_push_out_none_to_others() -> None:
    book = replied(Book(), "own").replied(1, REPLY | {"id": "a"}, "meter-1")
    for number in range(ENDED_MAX):
        book = book.replied(1, REPLY | {"id": f"e{number}"}, "meter-2")
    assert {"own", "meter-1/a"} <= book.entries.keys()
    assert len(book.entries) == ENDED_MAX


def test_replies_never_push_out_what_still_waits() -> None:
    book = asked(Book(), "waits")
    for number in range(3 * ENDED_MAX):
        book = replied(book, f"e{number}", body="\N{GRINNING FACE}" * 8000)
    assert book.entries["waits"].state == "waiting"
    assert len(book.encode()) <= BYTES_MAX


def test_the_last_reply_stays_however_large_the_rest_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BYTES_MAX", 10)
    book = replied(replied(Book(), "a"), "b")
    assert list(book.entries) == ["b"]


def test_the_same_request_asked_again_changes_nothing_and_a_reply_is_not_taken_back() -> None:
    book = asked(Book(), "a", at=5)
    assert asked(book, "a", at=9, name="other").entries == book.entries
    ended = replied(book, "a", at=7)
    assert asked(ended, "a", at=9).entries == ended.entries
    assert ended.entries["a"] == Entry("a", "route", 5, 60, "answered", "12 km", "", 7)


def test_a_reply_that_is_read_before_its_request_gets_the_rest_from_it() -> None:
    book = replied(Book(), "a", at=7)
    assert book.entries["a"] == Entry("a", "", 0, 0, "answered", "12 km", "", 7)
    assert asked(book, "a", at=5).entries["a"] == Entry(
        "a", "route", 5, 60, "answered", "12 km", "", 7
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": ""},
        {"id": "a b"},
        {"id": "a" * 57},
        {"id": None},
        {"name": ""},
        {"name": 5},
        {"expires_s": -1},
        {"expires_s": "soon"},
    ],
    ids=str,
)
def test_a_request_that_the_cloud_would_refuse_is_not_in_the_book(wrong: Mapping[str, Any]) -> None:
    assert Book().asked(1, ASKED | {"id": "a"} | dict(wrong)).entries == {}


STEPS = st.lists(
    st.tuples(st.sampled_from(["asked", "replied"]), st.sampled_from("abcde")), max_size=30
)


@given(STEPS)
def test_whatever_happens_it_comes_back_from_the_log_as_it_was(
    steps: list[tuple[str, str]],
) -> None:
    book = Book()
    for what, key in steps:
        book = asked(book, key) if what == "asked" else replied(book, key)
        assert Book.decode(book.encode()).entries == book.entries
    ended = {key for what, key in steps if what == "replied"}
    assert {key for key, entry in book.entries.items() if entry.state != "waiting"} == ended
    assert set(book.entries) == {key for _, key in steps}


@pytest.mark.parametrize(
    "kept",
    [b"\xff", b"5", b"{}", b'[{"id": "a", "later": 1}]', b"[5]", b'[{"name": "x"}]', b'{"a": 1}'],
)
async def test_a_book_that_cannot_be_read_is_a_new_one(tmp_path: Path, kept: bytes) -> None:
    with opened(tmp_path) as events:
        consumer = await events.consumer(module.CONSUMER, [REQUESTS, REPLIES])
        await consumer.commit({}, state=kept)
        assert kept_in(tmp_path).entries == {}


def test_where_there_is_no_log_there_is_no_book(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="no event log yet"):
        kept_in(tmp_path)


# the ledger


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abcdefg")), max_size=40))
def test_what_is_done_stays_done_and_the_book_keeping_survives_each_step(
    steps: list[tuple[bool, str]],
) -> None:
    ledger, done = Ledger(), set()
    for is_end, key in steps:
        if key in done:
            continue
        if is_end:
            ledger.end(key)
            done.add(key)
        else:
            ledger.begin(key)
        ledger = Ledger.decode(ledger.encode())
        assert {one for one in "abcdefg" if ledger.step(one) is Step.DONE} == done


@given(
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from(list(Step))),
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from(list(Step))),
)
def test_two_ledgers_joined_know_what_either_knows(
    one: dict[str, Step], other: dict[str, Step]
) -> None:
    joined = Ledger(one).joined(Ledger(other))
    for key in "abcd":
        known = {one.get(key), other.get(key)} - {None}
        assert joined.step(key) == (
            Step.DONE if Step.DONE in known else Step.BEGUN if known else None
        )
    assert Ledger(one).encode() == Ledger(one).joined(Ledger()).encode(), "and neither changes"


@pytest.mark.parametrize(("done", "first"), [(DONE_MAX, "d0"), (DONE_MAX + 1, "d1")])
def test_as_many_as_the_bound_are_remembered_and_what_is_begun_beside_them(
    done: int, first: str
) -> None:
    ledger = Ledger()
    ledger.begin("begun")
    for number in range(done):
        ledger.end(f"d{number}")
    remembered = [f"d{number}" for number in range(done) if ledger.step(f"d{number}") is Step.DONE]
    assert (len(remembered), remembered[0], ledger.step("begun")) == (DONE_MAX, first, Step.BEGUN)


def test_one_that_ends_again_is_remembered_as_the_latest() -> None:
    ledger = Ledger()
    for number in range(DONE_MAX):
        ledger.end(f"d{number}")
    ledger.end("d0")
    ledger.end("new")
    assert (ledger.step("d0"), ledger.step("d1")) == (Step.DONE, None)


@pytest.mark.parametrize("state", [b"{", b'{"a": "gone"}', b'{"a": 5}', b'{"a": null}', b"\xff"])
def test_a_ledger_that_cannot_be_read_says_so(state: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Ledger.decode(state)
