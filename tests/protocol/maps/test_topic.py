"""Topics, and the templates and filters that take them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.protocol.maps.topic import (
    TEMPLATE_BYTES_MAX,
    Crossing,
    TopicTemplate,
    covers,
    matches,
    overlap,
    reduced,
)

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="/+#{}\0"), max_size=6)
FIELDS = st.sampled_from(["a", "b_1", "room"])
PAIRS = st.one_of(
    TEXTS.map(lambda level: (level, None)), FIELDS.map(lambda name: ("{" + name + "}", name))
)
"""(level of a template, its field)"""


@given(
    st.lists(PAIRS, min_size=1, max_size=8, unique_by=lambda pair: pair[1] or object()), st.data()
)
def test_a_template_finds_in_every_topic_that_it_subscribes_to_what_stands_in_its_levels(
    pairs: list[tuple[str, str | None]], data: st.DataObject
) -> None:
    text = "/".join(level for level, _ in pairs)
    if not text:
        return
    template = TopicTemplate.parse(text)
    values = [data.draw(TEXTS) if name else level for level, name in pairs]
    assert template.filter == "/".join("+" if name else level for level, name in pairs)
    assert template.fields("/".join(values)) == {
        name: value for (_, name), value in zip(pairs, values, strict=True) if name
    }


@pytest.mark.parametrize("size", [TEMPLATE_BYTES_MAX, TEMPLATE_BYTES_MAX + 1])
def test_a_template_of_just_the_bound_is_one(size: int) -> None:
    text = "é" * (size // 2) + "x" * (size % 2)
    if size <= TEMPLATE_BYTES_MAX:
        assert TopicTemplate.parse(text).filter == text
    else:
        with pytest.raises(ValueError, match="bytes"):
            TopicTemplate.parse(text)


@pytest.mark.parametrize(
    ("pattern", "topic", "is_one"),
    [
        ("a/+/c", "a/b/c", True),
        ("a/+/c", "a/b/c/d", False),
        ("a/#", "a/b/c", True),
        ("a/#", "a", False),
        ("+/b", "$SYS/b", False),
        ("a/b", "a/b", True),
    ],
)
def test_filters_take_topics(pattern: str, topic: str, is_one: bool) -> None:
    assert matches(pattern, topic) is is_one


def test_filters_that_others_cover_are_not_needed() -> None:
    assert reduced(["a/+", "a/#", "b/c", "a/b/c", "b/c"]) == ("a/#", "b/c")
    assert covers("a/#", "a/+/c")
    assert not covers("a/+", "a/#")


def test_filters_that_cross_are_found() -> None:
    assert overlap("a/+", "+/b")
    assert not overlap("a/+/x", "a/+/y")
    assert list(Crossing(["a/+", "+/b", "c"]).numbered) == ["a/+"]


LEVELS = st.sampled_from(["a", "b", "c"])


FILTERS = st.lists(
    st.lists(st.one_of(LEVELS, st.just("+")), min_size=1, max_size=3).flatmap(
        lambda one: st.sampled_from(["/".join(one), "/".join([*one, "#"])])
    ),
    min_size=1,
    max_size=6,
    unique=True,
)


@given(FILTERS, st.lists(LEVELS, min_size=1, max_size=4).map("/".join))
def test_of_the_copies_of_a_message_exactly_one_is_taken(filters: list[str], topic: str) -> None:
    crossing = Crossing(filters)
    copies = [
        [number] if (number := crossing.numbered.get(one)) is not None else None
        for one in filters
        if matches(one, topic)
    ]
    taken = [one for one in copies if not crossing.is_repeat(topic, one)]
    assert len(taken) == (1 if copies else 0)
    together = [number for one in copies for number in one or ()]
    if copies and None not in copies:  # one message, with the numbers of all
        assert not crossing.is_repeat(topic, together)


def test_a_number_of_other_filters_than_now_proves_nothing() -> None:
    before, after = Crossing(["a/+", "+/b"]), Crossing(["a/+", "+/b", "#"])
    assert before.is_repeat("a/b", [before.numbered["a/+"]])
    assert not after.is_repeat("a/b", [before.numbered["a/+"]])
