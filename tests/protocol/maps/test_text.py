"""Text templates with values of a topic and of a message in them."""

from __future__ import annotations

from typing import Any

import pytest

from edgewake.protocol.maps.text import TEXT_CHARS_MAX, Text

WHOLE = {"id": "boiler", "n": {"at": 7}}
OWN = {"id": 3.5, "on": True}


@pytest.mark.parametrize(
    ("template", "filled"),
    [("plain", "plain"), ("{device}", "car"), ("{device}-{$.id}/{@.id}", "car-boiler/3.5"),
     ("{$.n.at}{$.n.at}", "77")],
)  # fmt: skip
def test_placeholders_are_filled_by_topic_message_and_own_object(
    template: str, filled: str
) -> None:
    text = Text.parse(template, ["device"])
    assert text.fill({"device": "car"}, WHOLE, OWN) == filled
    assert text.constant == (template if template == filled else None)


@pytest.mark.parametrize(
    ("template", "why"),
    [("", "1 to 256"), ("x" * (TEXT_CHARS_MAX + 1), "1 to 256"), ("{device", "unbalanced"),
     ("a}b{device}", "unbalanced"), ("{room}", "the topic has device"), ("{$.a[*]}", "one value")],
)  # fmt: skip
def test_a_template_that_cannot_be_is_refused_with_its_reason(template: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Text.parse(template, ["device"])


@pytest.mark.parametrize(
    ("template", "found"), [("{$.x}", "nothing"), ("{@.on}", "bool"), ("{$.n}", "dict")]
)
def test_a_value_that_is_no_text_and_no_number_is_refused(template: str, found: str) -> None:
    with pytest.raises(ValueError, match=f"found {found}"):
        Text.parse(template, []).fill({}, WHOLE, OWN)


@pytest.mark.parametrize(("template", "is_of_topic"), [("a-{device}", True), ("{@.id}", False)])
def test_whether_the_topic_alone_fills_it_is_known(template: str, is_of_topic: Any) -> None:
    assert Text.parse(template, ["device"]).is_of_topic is is_of_topic
