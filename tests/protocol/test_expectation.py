from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import AfterValidator, BaseModel, Field, ValidationError

from edgewake.protocol.expectation import expectation


class _A(BaseModel):
    type: Literal["a"]


class _B(BaseModel):
    type: Literal["b"]


def _named(name: str) -> str:
    if name != "car":
        raise ValueError("expected the name of a device")
    return name


class _Model(BaseModel, extra="forbid", strict=True):
    text: Annotated[str, Field(min_length=2, max_length=65_536)] = "ok"
    number: Annotated[int, Field(ge=1, le=500)] = 1
    state: Literal["on", "off"] = "on"
    device: Annotated[str, AfterValidator(_named)] = "car"
    source: Annotated[_A | _B, Field(discriminator="type")] | None = None
    name: Annotated[str, Field(pattern="^[a-z]+$")] = "a"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"text": ""}, "expected at least 2 characters"),
        ({"text": "x" * 65_537}, "expected at most 65,536 characters"),
        ({"text": 1}, "expected text"),
        ({"number": 0}, "expected 1 or more"),
        ({"number": 501}, "expected 500 or less"),
        ({"number": "x"}, "expected an integer"),
        ({"state": "maybe"}, "expected on or off"),
        ({"device": "bus"}, "expected the name of a device"),
        ({"source": {"type": "nope"}}, "type 'nope': expected a or b"),
        ({"source": {}}, "type is missing"),
        ({"more": 1}, "is not known"),
        ({"name": "A"}, "expected to match ^[a-z]+$"),
    ],
)
def test_what_was_expected_is_told_in_plain_words(value: dict[str, object], expected: str) -> None:
    with pytest.raises(ValidationError) as raised:
        _Model.model_validate(value)
    assert expectation(raised.value.errors()[0]) == expected
