"""Words in texts: case and marks do not count."""

from __future__ import annotations

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.log.filters.filter import compile_where
from edgewake.cloud.log.filters.filter_words import fold
from tests.examples import examples

words = st.text("aàAáßsſé éÉ0_.-ﬁİ語", min_size=1, max_size=6)


def plain_fold(text: str) -> str:
    """As Unicode says: letter by letter, without a table."""
    parts = (unicodedata.normalize("NFKD", one.casefold()) for one in text)
    return "".join(
        one for part in parts for one in part if not unicodedata.combining(one)
    ).casefold()


@given(st.text(max_size=60) | words)
@settings(max_examples=examples(500))
def test_case_and_marks_do_not_count(text: str) -> None:
    basic = "".join(one for one in text if ord(one) < 0x10000)
    assert fold(basic) == plain_fold(basic)


@given(st.lists(st.sampled_from(["Brake", "FLUID", "tyré", "Straße", "ok"]), max_size=5), st.data())
@settings(max_examples=examples(200))
def test_words_are_found_whole_all_or_one_of_them(said: list[str], data: st.DataObject) -> None:
    sought = data.draw(
        st.lists(st.sampled_from(["brake", "fluid", "tyre", "strasse", "flu*"]), min_size=1)
    )
    note = {"note": ", ".join(said) + "."}
    folded = list(map(plain_fold, said))
    have = [
        any(word.startswith(one[:-1]) if one[-1] == "*" else word == one for word in folded)
        for one in sought
    ]
    text = " ".join(sought)
    assert compile_where(f"has_words(note, '{text}')").passes(note) is all(have)
    assert compile_where(f"has_any_word(note, '{text}')").passes(note) is any(have)
