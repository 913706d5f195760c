"""What was refused, with its reason and origin."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from edgewake.protocol.frames.dead_letter import DeadLetter, known_reason

LETTER = DeadLetter(
    reason="shape",
    detail="expected ° and found \ud800",
    topic="ew/v1/car/up/speed",
    part="bridge-0",
    received_at=1_790_000_000_000,
    size=3,
)


def test_a_letter_is_read_from_its_headers_whatever_else_stands_there() -> None:
    headers = [*LETTER.headers(), ("traceparent", b"00-"), ("content_type", None)]
    read = DeadLetter.from_headers(headers)
    assert read == LETTER.model_copy(update={"detail": "expected ° and found ?"})


def test_what_is_no_letter_is_refused() -> None:
    with pytest.raises(ValidationError):
        DeadLetter.from_headers([("reason", b"shape"), ("received_at", b"soon")])


@pytest.mark.parametrize(("reason", "known"), [("quota", "quota"), ("\nforged", "unknown")])
def test_a_label_is_of_the_closed_list(reason: str, known: str) -> None:
    assert known_reason(reason) == known
